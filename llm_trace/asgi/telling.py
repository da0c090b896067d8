"""The in-band ledger: a caller that asked for it is told the request's phases in the answer itself.

One of the two exceptions to "observe only", and the narrowest that does it. Nothing is told to a
caller that did not ask. No message is added, delayed or reordered: into an event stream goes one
comment line before the event of the first token and one before the end, into the head of an answer
in one piece goes a `Server-Timing` header. A body that is compressed, measured, signed or kept by
caches is left as it is. Only durations are told, by phase.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from llm_trace.asgi.sse import Seen, TokenDetector, framing_of
from llm_trace.asgi.types import Message, Scope, Send
from llm_trace.core import faults, inband
from llm_trace.core.freeze import so_far
from llm_trace.core.timeline import Timeline

_HEADER: Final = inband.HEADER.encode()
_ASKS: Final = (_HEADER, inband.ASKED.encode())
_DONE: Final = b"[DONE]"
_LONG: Final = 64
"""The terminator is an event of its own: a longer chunk is not looked into."""
_FIXES_BODY: Final = frozenset(
    {b"content-length", b"content-digest", b"repr-digest", b"digest", b"content-md5", b"signature"}
)
"""Headers with which not even a comment may be added."""


def asks(scope: Scope) -> bool:
    """Whether the caller asks for the ledger, by a method whose answers no cache keeps."""
    return scope["method"] == "POST" and _ASKS in scope["headers"]


class Telling:
    """What is sent to a caller that asked.

    Args:
        send: The server's `send`; `Telling.send` takes its place.
        timeline: The request.
    """

    __slots__ = (
        "_before",
        "_change",
        "_detector",
        "_due",
        "_flowing",
        "_now",
        "_send",
        "_timeline",
        "settle",
    )

    def __init__(self, send: Send, timeline: Timeline) -> None:
        self._send = send
        self._timeline = timeline
        self._now = timeline.clock.monotonic_ns
        self._detector = TokenDetector("sse")
        self._before = b"\n"
        """The last body that was not empty, or the beginning of the stream."""
        self._due = b""
        self._flowing = False
        self._change: Callable[[Telling, Message], Message] = Telling._start
        """Not bound, so that it is no reference of its own: see `Reply.release`."""
        self.settle: Callable[[], None] = lambda: None
        """Brings the timeline up to date; set by whoever watches the reply."""

    def send(self, message: Message) -> Awaitable[None]:
        """Send `message` with what the caller asked for; no coroutine of our own a chunk."""
        if self._flowing:
            body = message.get("body", b"")
            if len(body) > _LONG and message.get("more_body"):
                self._before = body
                return self._send(message)
        try:
            message = self._change(self, message)
        except Exception as error:  # noqa: BLE001 - rule 1: never hurt the host
            self._change, self._flowing = _nothing, False
            faults.contain("telling", error)
        return self._send(message)

    # --- the states of an answer --------------------------------------------------------------

    def _start(self, message: Message) -> Message:
        """The head: what kind of answer it is decides how the ledger goes along."""
        if message["type"] != "http.response.start":
            return message
        self._change = _nothing
        headers = {name.lower(): value for name, value in message.get("headers", ())}
        plain = headers.get(b"content-encoding", b"identity") == b"identity"
        if message["status"] != 200 or not plain:  # noqa: PLR2004 - parts and refusals are not told
            return message
        kind = headers.get(b"content-type", b"").decode("latin-1")
        framing = framing_of(kind)
        if framing is None and "json" in kind:
            return self._with_timing(message)
        fixed = message.get("trailers") or _FIXES_BODY & headers.keys()
        return self._open_stream(message) if framing == "sse" and not fixed else message

    def _open_stream(self, message: Message) -> Message:
        self._change = Telling._before_token
        return _with_headers(message, [_ASKS])

    def _with_timing(self, message: Message) -> Message:
        phases = so_far(self._timeline, self._now(), streamed=False)
        timing = (inband.SERVER_TIMING.encode(), inband.server_timing(phases).encode())
        return _with_headers(message, [_ASKS, timing])

    def _before_token(self, message: Message) -> Message:
        body = message.get("body", b"")
        if not self._due and self._detector.feed(body) & Seen.TOKEN:
            self._due = self._told(inband.FIRST_TOKEN)
        starts_line = self._before[-1:] == b"\n"  # only there a line of ours may stand
        self._before = body or self._before
        told = self._due if starts_line else b""
        if told:
            self._change, self._flowing = Telling._before_end, True
        if starts_line and not message.get("more_body"):
            told += self._last_word()
        return {**message, "body": told + body} if told else message

    def _before_end(self, message: Message) -> Message:
        """A chunk that is short enough to be the terminator, or the last one."""
        body = message.get("body", b"")
        if message.get("more_body") and _DONE not in body:
            self._before = body or self._before
            return message
        told = self._last_word() if self._before[-1:] == b"\n" else b""
        return {**message, "body": told + body} if told else message

    def _last_word(self) -> bytes:
        """The whole ledger, before the terminator or the end of the body."""
        self._change, self._flowing = _nothing, False
        self.settle()
        return self._told(inband.END)

    def _told(self, at: str) -> bytes:
        streamed = at == inband.FIRST_TOKEN or bool(self._timeline.first_token_sent)
        return inband.comment(at, so_far(self._timeline, self._now(), streamed=streamed))


def _nothing(_telling: Telling, message: Message) -> Message:
    return message


def _with_headers(message: Message, pairs: list[tuple[bytes, bytes]]) -> Message:
    return {**message, "headers": [*message.get("headers", ()), *pairs]}
