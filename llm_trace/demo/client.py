"""One streamed request, timed by the client's own clock, which llm_trace knows nothing of."""

from __future__ import annotations

import asyncio
import json
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from llm_trace.core.clock import SYSTEM
from llm_trace.demo.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

PATH: Final = "/v1/chat/completions"
TIMEOUT: Final = 60.0
_LIMIT: Final = 1 << 20
_OK: Final = 200


@dataclass(slots=True)
class Answer:
    """What the client saw; seconds count from the moment before it connected."""

    kind: str
    trace_id: str = field(default_factory=lambda: secrets.token_hex(16))
    span_id: str = field(default_factory=lambda: secrets.token_hex(8))
    sent_wall_ns: int = 0
    status: int = 0
    first_byte: float | None = None
    ttft: float | None = None
    last: float | None = None
    chunks: int = 0
    error: str | None = None

    @property
    def ok(self) -> bool:
        """Whether it was answered in full, with at least one token."""
        return self.error is None and self.ttft is not None


async def ask(port: int, api_key: str, kind: str, body: Mapping[str, Any]) -> Answer:
    """Send one request and read its stream to the end; a failure is part of the answer."""
    answer = Answer(kind, sent_wall_ns=SYSTEM.wall_ns())
    started = SYSTEM.monotonic_ns()
    try:
        await asyncio.wait_for(_exchange(port, api_key, body, answer, started), TIMEOUT)
    except asyncio.TimeoutError:  # first: from Python 3.11 on it is an OSError
        answer.error = f"no full answer within {TIMEOUT:g} s"
    except (OSError, EOFError, ValueError, LookupError) as fault:
        answer.error = f"{type(fault).__name__}: {fault}"
    answer.last = (SYSTEM.monotonic_ns() - started) / 1e9
    if answer.error is None and answer.ttft is None:
        answer.error = "the stream held no token"
    return answer


async def _exchange(
    port: int, api_key: str, body: Mapping[str, Any], answer: Answer, started: int
) -> None:
    reader, writer = await asyncio.open_connection(LOOPBACK, port, limit=_LIMIT)
    try:
        writer.write(_request(api_key, body, answer))
        answer.status, chunked = await _head(reader)
        pieces = _chunks(reader) if chunked else _whole(reader)
        await _read(pieces, answer, started)
    finally:
        writer.close()


def _request(api_key: str, body: Mapping[str, Any], answer: Answer) -> bytes:
    content = json.dumps(body).encode()
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: {LOOPBACK}\r\nConnection: close\r\n"
        f"Authorization: Bearer {api_key}\r\nContent-Type: application/json\r\n"
        f"Traceparent: 00-{answer.trace_id}-{answer.span_id}-01\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


async def _head(reader: asyncio.StreamReader) -> tuple[int, bool]:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    return int(head.split(None, 2)[1]), b"transfer-encoding: chunked" in head


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int(await reader.readuntil(b"\r\n"), 16):
        yield (await reader.readexactly(size + 2))[:-2]


async def _whole(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    yield await reader.read(_LIMIT)


async def _read(pieces: AsyncIterator[bytes], answer: Answer, started: int) -> None:
    """Cut the stream into events; time is read before anything is parsed."""
    rest = b""
    async for piece in pieces:
        at = (SYSTEM.monotonic_ns() - started) / 1e9
        answer.first_byte = answer.first_byte or at
        *events, rest = (rest + piece).split(b"\n\n")
        for event in events:
            _take(event, answer, at)
    if answer.status != _OK:
        answer.error = f"status {answer.status}: {rest.decode(errors='replace')[:200]}"


def _take(event: bytes, answer: Answer, at: float) -> None:
    data = event.removeprefix(b"data: ")
    if data in {event, b"[DONE]"}:
        return
    payload = json.loads(data)
    if "error" in payload:
        answer.error = f"the stream reports {payload['error']}"
    for choice in payload.get("choices", ()):
        if choice["delta"].get("content"):
            answer.chunks += 1
            answer.ttft = answer.ttft or at
