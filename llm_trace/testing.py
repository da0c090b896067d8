"""Public helpers for tests of llm_trace and of apps that use it: a clock, a recorder, a driver.

    clock = FakeClock()
    recorder = Recorder()
    app = scripted(clock, 5, response_start("text/event-stream"), 20, sse("[DONE]"))
    await drive(app, recorder, clock=clock, body=b'{"stream": true}')
    assert recorder.record.phases == {"unattributed": 25}

Time moves only where a test says so and no socket is opened, so every duration can be compared
exactly.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from llm_trace.asgi.middleware import LedgerMiddleware
from llm_trace.asgi.types import ASGIApp, Message, Receive, Scope, Send
from llm_trace.core.clock import Clock
from llm_trace.core.dispatch import Dispatch, Observer
from llm_trace.core.record import RequestRecord
from llm_trace.core.tracer import NO_TRACER, Tracer
from llm_trace.settings import Settings

START: Final = 1_000_000_000
"""Monotonic ns at which a `FakeClock` begins."""
WALL: Final = 1_700_000_000_000_000_000
"""Unix ns at which a `FakeClock` begins."""

RECEIVE: Final = "receive"
"""A step of a `scripted` app: it asks for one message."""

Step = int | str | Message | BaseException | Callable[[], object]


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
    """A hand-driven ASGI server: gives the request's messages, keeps what the app sends.

    Like a real one it gives a disconnect after the last message of the response, unless the
    messages that it was given have one before.

    Args:
        body: The request's body, in one message.
        chunks: The request's messages, in place of `body`.
    """

    def __init__(self, body: bytes = b"", chunks: Iterable[Message] = ()) -> None:
        one = {"type": "http.request", "body": body, "more_body": False}
        self._inbound = deque(chunks or [one])
        self._over = asyncio.Event()
        self.received = 0
        self.sent: list[Message] = []

    async def receive(self) -> Message:
        """The next message of the request."""
        self.received += 1
        if self._inbound:
            message = self._inbound.popleft()
            if message["type"] == "http.disconnect":
                self._over.set()
            return message
        await self._over.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Keep a message of the app."""
        self.sent.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self._over.set()

    @property
    def body(self) -> bytes:
        """All that the client got."""
        return b"".join(m.get("body", b"") for m in self.sent)


def response_start(
    content_type: str = "application/json", status: int = 200, **headers: str
) -> Message:
    """The message that begins a response; `content_encoding="gzip"` adds such a header."""
    pairs = {"content-type": content_type, **headers}
    encoded = [(k.replace("_", "-").encode(), v.encode()) for k, v in pairs.items()]
    return {"type": "http.response.start", "status": status, "headers": encoded}


def response_body(body: bytes = b"", *, more: bool = False) -> Message:
    """A message with a part of a response's body, by default the last."""
    return {"type": "http.response.body", "body": body, "more_body": more}


def sse(data: object) -> Message:
    """A message with one server-sent event: text as it is, anything else as JSON."""
    text = data if isinstance(data, str) else json.dumps(data)
    return response_body(f"data: {text}\n\n".encode(), more=True)


def scripted(clock: FakeClock, *steps: Step, reads: bool = True) -> ASGIApp:
    """An app that takes `steps` one after the other.

    A number lets that many nanoseconds pass, a message is sent, `RECEIVE` asks for one, an
    exception is raised, and anything else is called, and awaited where it can be.

    Args:
        clock: The clock that numbers move.
        *steps: What the app does.
        reads: Whether it reads the request's body first.
    """

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        while reads and (await receive()).get("more_body", False):
            pass
        for step in steps:
            await _take(step, clock, receive, send)

    return app


async def _take(step: Step, clock: FakeClock, receive: Receive, send: Send) -> None:
    if isinstance(step, int):
        clock.advance(step)
    elif isinstance(step, str):
        await receive()
    elif isinstance(step, BaseException):
        raise step
    elif callable(step):
        result = step()
        if inspect.isawaitable(result):
            await result
    else:
        await send(step)


def watched(
    app: ASGIApp,
    *observers: Observer,
    clock: FakeClock | None = None,
    tracer: Tracer = NO_TRACER,
    settings: Mapping[str, Any] | None = None,
) -> LedgerMiddleware:
    """The middleware around `app`, to be called as often as a test likes.

    Args:
        app: The ASGI app.
        *observers: Hear of every finished request.
        clock: Where time comes from; a new fake clock by default.
        tracer: Gives ids; none by default.
        settings: Keywords of `Settings`.
    """
    return LedgerMiddleware(
        app,
        settings=Settings(**(settings or {})),
        dispatch=Dispatch(tracer, observers),
        clock=(clock or FakeClock()).clock,
    )


async def drive(
    app: ASGIApp,
    *observers: Observer,
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
        *observers: Hear of the finished request, such as a `Recorder`.
        body: The request's body.
        scope: The request; a POST to a chat route by default.
        server: Drives the messages; one that gives `body` by default.
        clock: Where time comes from; a new fake clock by default.
        tracer: Gives ids; none by default.
        settings: Keywords of `Settings`.
    """
    server = server or Server(body)
    middleware = watched(app, *observers, clock=clock, tracer=tracer, settings=settings)
    await middleware(scope or http_scope(), server.receive, server.send)
    return server
