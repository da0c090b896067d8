"""The hot path: what a streamed chunk costs once the first token is out.

Every chunk of every stream runs through `send` here, so it is written for cost: a closure, whose
locals cost half of what attributes do, one clock read, the two comparisons of `TokenDetector.usual`
made in place, one comparison for the gap's bucket. A chunk that is usual by them is not even fed to
the detector; one that is not is, and what is no token goes to the exchange, which is written for
reading.

A `send` that a slow client holds back suspends. Its first step is taken here: where that was all,
nobody held it, and no second clock read is spent on knowing that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from llm_trace.asgi.gaps import GapCounter
from llm_trace.asgi.held import rest_of
from llm_trace.asgi.sse import TokenDetector, is_escaped
from llm_trace.asgi.types import Message, Send
from llm_trace.core import faults
from llm_trace.core.timeline import Timeline

_NOTHING: Final = (b"\x00", b"\x00")
"""The beginning and end of a usual chunk, while none is: every chunk is read."""
_QUOTE: Final = ord('"')
"""As a number, it is searched for as one byte."""

Arm = Callable[[TokenDetector, int], None]


class Watcher(Protocol):
    """Who hears of the messages that are not usual."""

    timeline: Timeline

    def watch(self, message: Message, now: int) -> None:
        """A message was sent, before the first token."""

    def unusual(self, message: Message, now: int, seen: int) -> None:
        """A message after the first token carried `seen`, in bits of `Seen`."""

    def client_left(self) -> None:
        """The server's `send` says that nobody listens."""


def snapshot(message: Message) -> Message:
    """`message` as the app sent it: middlewares outside of us may write into the very object.

    Headers may be an iterator, as Sanic's are: what reads it first leaves nothing to the next, so
    the message gets a list in its place.
    """
    headers = message.get("headers")
    if headers is not None and isinstance(headers, Iterator):
        message["headers"] = headers = list(headers)
    if type(headers) is list:
        return {**message, "headers": tuple(headers)}
    return {**message}


def watched(  # noqa: C901, PLR0915 - one path, laid out for cost
    send: Send, now: Callable[[], int], watcher: Watcher, gaps: GapCounter
) -> tuple[Send, Arm, Callable[[], None]]:
    """The `send` for the app, and the ways to arm its hot path and to settle what it counted.

    Args:
        send: The server's `send`.
        now: Monotonic ns.
        watcher: Hears of what is not usual.
        gaps: Gets the gaps.

    Returns:
        The `send`; `arm(detector, bits)`, after which a chunk that carries `bits` and nothing
        else only counts its gap; and `settle()`, after which timeline and gaps are up to date.
    """
    timeline = watcher.timeline
    detector: TokenDetector | None = None
    head, tail = _NOTHING
    usual = last = longest = low = high = cell = 0
    count = told = placed = 0  # usual chunks; those that the detector and the gaps know of

    def arm(armed: TokenDetector, bits: int) -> None:
        nonlocal detector, head, tail, usual, last
        detector, usual, last = armed, bits, timeline.last_token_sent
        head, tail = _NOTHING if armed.held else armed.usual

    def settle() -> None:
        nonlocal told, placed
        timeline.last_token_sent = last or timeline.last_token_sent
        gaps.counts[cell] += count - placed
        gaps.longest = max(gaps.longest, longest)
        placed = count
        if detector is not None:
            detector.facts.token_events += count - told  # by which it knows how its shape served
            told = count

    def read(message: Message, body: bytes, more: object, at: int) -> None:
        """A message that is not usual at sight; it may carry a token of the usual kind yet."""
        nonlocal head, tail, last
        if detector is None:
            watcher.watch(message, at)
            return
        settle()
        seen = detector.feed(body)
        head, tail = _NOTHING if detector.held else detector.usual  # perhaps learned afresh
        if seen == usual and more:
            place(at - last)
            last = at
        else:
            watcher.unusual({**message, "more_body": more}, at, seen)

    def place(gap: int) -> None:
        """A gap that is not of the last one's bucket, or the longest yet."""
        nonlocal longest, low, high, cell
        settle()
        longest = max(longest, gap)
        low, high, cell = gaps.place(gap)
        high = min(high, longest)

    async def watched_send(message: Message) -> None:  # noqa: C901 - see above
        nonlocal last, count, placed
        try:  # before others change it: a compressor outside of us does
            body = message.get("body", b"")
            more = message.get("more_body")
            shown = message if detector is not None else snapshot(message)
        except Exception as error:  # noqa: BLE001 - what is no message is for the server to refuse
            faults.contain("send", error)
            body, more, shown = b"", None, {}
        try:
            awaitable: Any = send(message)
            try:
                steps = awaitable.__await__()
            except AttributeError:  # a generator, made a coroutine by `types.coroutine`
                steps = awaitable
            for yielded in steps:  # none, unless the client is slow
                suspended = now()
                try:
                    await rest_of(steps, yielded)
                finally:
                    timeline.send_wait += now() - suspended
                break
        except OSError:
            watcher.client_left()
            raise
        at = now()
        try:
            if type(body) is bytes and more:
                opened = body.removeprefix(head)  # the body itself, where it begins otherwise
                content = opened.removesuffix(tail)  # likewise
                if content is not opened and opened is not body and content:  # noqa: SIM102
                    if _QUOTE not in content or is_escaped(content):
                        gap = at - last
                        last = at
                        count += 1
                        if gap > high or gap <= low:
                            placed += 1
                            place(gap)
                        return
            read(shown, body, more, at)
        except Exception as error:  # noqa: BLE001 - rule 1: never hurt the host
            faults.contain("send", error)

    return watched_send, arm, settle
