"""Public helpers for tests of llm_trace and of apps that use it: a clock, a recorder, a driver.

clock = FakeClock()
recorder = Recorder()
await drive(app, recorder, clock=clock, body=b'{"stream": true}')
assert recorder.record.ttft_phases == {"admission": 5, "unattributed": 20}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from llm_trace.asgi.middleware import LedgerMiddleware
from llm_trace.asgi.types import ASGIApp, Message, Scope
from llm_trace.core.clock import Clock
from llm_trace.core.dispatch import Dispatch
from llm_trace.core.record import RequestRecord
from llm_trace.core.tracer import NO_TRACER, Tracer
from llm_trace.settings import Settings

START: Final = 1_000_000_000
"""Monotonic ns at which a `FakeClock` begins."""
WALL: Final = 1_700_000_000_000_000_000
"""Unix ns at which a `FakeClock` begins."""


class FakeClock:
    """A clock that moves only when it is told to; give `clock.clock` where a `Clock` is wanted."""

    def __init__(self) -> None:
        self.now = START
        self.wall = WALL
        self.clock = Clock(lambda: self.now, lambda: self.wall + self.now - START)

    def advance(self, ns: int) -> None:
        """Let `ns` nanoseconds pass."""
        self.now += ns


class Recorder:
    """An observer that keeps the records of finished requests."""

    def __init__(self) -> None:
        self.records: list[RequestRecord] = []

    def observe(self, record: RequestRecord) -> None:
        """Keep `record`."""
        self.records.append(record)

    @property
    def record(self) -> RequestRecord:
        """The only record.

        Raises:
            AssertionError: There is none, or more than one.
        """
        if len(self.records) != 1:
            raise AssertionError(f"expected one record, got {len(self.records)}")
        return self.records[0]


def http_scope(
    path: str = "/v1/chat/completions",
    *,
    method: str = "POST",
    headers: Iterable[tuple[bytes, bytes]] = ((b"content-type", b"application/json"),),
    **more: Any,
) -> Scope:
    """An ASGI HTTP scope as a server would give it."""
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": list(headers),
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 8000),
        "state": {},
        **more,
    }


class Server:
    """A hand-driven ASGI server: gives one body and a disconnect, keeps what the app sends."""

    def __init__(self, body: bytes = b"", chunks: Iterable[Message] = ()) -> None:
        self._inbound = list(chunks) or [
            {"type": "http.request", "body": body, "more_body": False},
            {"type": "http.disconnect"},
        ]
        self.received = 0
        self.sent: list[Message] = []

    async def receive(self) -> Message:
        """The next message, the last one again and again."""
        message = self._inbound[min(self.received, len(self._inbound) - 1)]
        self.received += 1
        return message

    async def send(self, message: Message) -> None:
        """Keep a message of the app."""
        self.sent.append(message)

    @property
    def body(self) -> bytes:
        """All that the client got."""
        return b"".join(m.get("body", b"") for m in self.sent)


async def drive(
    app: ASGIApp,
    recorder: Recorder,
    *,
    body: bytes = b"",
    scope: Scope | None = None,
    server: Server | None = None,
    clock: FakeClock | None = None,
    tracer: Tracer = NO_TRACER,
    settings: Mapping[str, Any] | None = None,
) -> Server:
    """Serve one request of `app` behind the middleware, with no sockets.

    Args:
        app: The ASGI app.
        recorder: Gets the record.
        body: The request's body.
        scope: The request; a POST to a chat route by default.
        server: Drives the messages; one that gives `body` by default.
        clock: Where time comes from; a new fake clock by default.
        tracer: Gives ids; none by default.
        settings: Keywords of `Settings`.
    """
    server = server or Server(body)
    middleware = LedgerMiddleware(
        app,
        settings=Settings(**(settings or {})),
        dispatch=Dispatch(tracer, [recorder]),
        clock=(clock or FakeClock()).clock,
    )
    await middleware(scope or http_scope(), server.receive, server.send)
    return server
