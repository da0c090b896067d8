"""Streams to feed to a detector, ways to cut them, and what came out of it."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from llm_trace.asgi.sse import StreamFacts, TokenDetector

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from llm_trace.asgi.sse.shape import Shape


class ReferenceDetector(TokenDetector):
    """A detector that learns nothing, so that it reads every event in full."""

    __slots__ = ()

    def _learn(self, shape: Shape | None) -> None:
        """Forget the shape."""

    def _learn_counted(self, shape: Shape | None) -> None:
        """Forget the shape."""


def sse(*payloads: Any, event: str = "", end: str = "\n") -> bytes:
    """Return `payloads` (JSON values, or text as it is) as server-sent events."""
    name = f"event: {event}{end}" if event else ""
    return b"".join(f"{name}data: {_text(p)}{end}{end}".encode() for p in payloads)


def ndjson(*payloads: Any) -> bytes:
    """Return `payloads` as JSON lines."""
    return b"".join(f"{_text(p)}\n".encode() for p in payloads)


def typed(*payloads: dict[str, Any]) -> bytes:
    """Return `payloads` as server-sent events that are named for their types."""
    return b"".join(sse(p, event=p["type"]) for p in payloads)


def chat(delta: dict[str, Any] | None = None, /, finish: str | None = None, **more: Any) -> Any:
    """Return a chat chunk as vLLM sends it."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1764460000}
    return {**head, "model": "tiny", "choices": [choice], **more}


def _text(payload: Any) -> str:
    # Without blanks, as vLLM and OpenAI write it.
    if isinstance(payload, str):
        return payload
    return json.dumps(payload, separators=(",", ":"), ensure_ascii=False)


def observed(
    bodies: Iterable[bytes], framing: str = "sse", detector: type[TokenDetector] = TokenDetector
) -> dict[str, Any]:
    """Return all that a detector says of a stream that comes in `bodies`."""
    subject = detector(framing)
    bits = 0
    for body in bodies:
        bits |= subject.feed(body)
    return {"bits": bits | subject.close(), **said(subject.facts)}


def said(facts: StreamFacts) -> dict[str, Any]:
    """Return the facts that say something."""
    every = {name: getattr(facts, name) for name in StreamFacts.__slots__}
    if facts.usage is not None:
        every["usage"] = {k: v for k, v in facts.usage._asdict().items() if v is not None}
    return {name: value for name, value in every.items() if value}


def cut_at(stream: bytes, *places: int) -> list[bytes]:
    """Return `stream` cut at `places`."""
    return [stream[a:b] for a, b in pairwise([0, *sorted(places), len(stream)])]


def every_cut(stream: bytes) -> Iterator[list[bytes]]:
    """Yield `stream` whole, byte by byte, and cut in two at every place."""
    yield [stream]
    yield [stream[i : i + 1] for i in range(len(stream))]
    for place in range(1, len(stream)):
        yield cut_at(stream, place)


def same_at_every_cut(stream: bytes, framing: str = "sse") -> dict[str, Any]:
    """Return what a detector says of `stream`, having checked that no cut changes it."""
    whole = observed([stream], framing)
    for bodies in every_cut(stream):
        assert observed(bodies, framing) == whole, bodies
    return whole


def same_at_every_line_end(stream: bytes, framing: str = "sse") -> dict[str, Any]:
    """Return what a detector says of `stream`, whatever its cuts and its line ends."""
    plain = same_at_every_cut(stream, framing)
    for end in (b"\r\n", b"\r"):
        assert same_at_every_cut(stream.replace(b"\n", end), framing) == plain, end
    return plain
