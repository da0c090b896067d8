"""The hot path: what a streamed chunk costs once the first token is out.

Every chunk of every stream runs through `send` here, so it is written for cost: a closure, whose
locals cost half of what attributes do, one clock read, the two comparisons of `TokenDetector.usual`
made in place, one comparison for the gap's bucket. A chunk that is usual by them is not even fed to
the detector; one that is not is, and what is no token goes to the exchange, which is written for
reading.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from llm_trace.asgi.gaps import GapCounter
from llm_trace.asgi.sse import TokenDetector
from llm_trace.asgi.types import Message, Send
from llm_trace.core import faults
from llm_trace.core.timeline import Timeline

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
    held: bytes | bytearray = b""
    head = rest = b""
    usual = last = longest = low = high = cell = run = unfed = 0

    def arm(fed: TokenDetector, bits: int) -> None:
        nonlocal detector, held, head, rest, usual, last
        detector, held, (head, rest) = fed, fed.held, fed.usual
        usual, last = bits, timeline.last_token_sent

    def settle() -> None:
        nonlocal run, unfed
        timeline.last_token_sent = last or timeline.last_token_sent
        gaps.counts[cell] += run
        gaps.longest = max(gaps.longest, longest)
        run = 0
        if detector is not None:
            detector.facts.token_events += unfed
            unfed = 0

    async def watched_send(message: Message) -> None:  # noqa: C901 - see above
        nonlocal head, rest, last, longest, low, high, cell, run, unfed
        try:
            await send(message)
        except OSError:
            watcher.client_left()
            raise
        at = now()
        try:
            if detector is None:
                watcher.watch(message, at)
                return
            body = message.get("body", b"")
            seen = 0
            if type(body) is bytes and not held:
                opened = body.removeprefix(head)  # the body itself, where it begins otherwise
                content, _, closed = opened.partition(b'"')
                if closed == rest and content and opened is not body:
                    seen = usual
                    unfed += 1
            if not seen:
                detector.facts.token_events += unfed  # by which it knows how its shape served
                unfed = 0
                seen = detector.feed(body)
                head, rest = detector.usual  # which may have been learned afresh
            if seen != usual or not message.get("more_body"):
                settle()
                watcher.unusual(message, at, seen)
                return
            gap = at - last
            last = at
            if low < gap <= high:
                run += 1
            else:
                settle()
                low, high, cell = gaps.place(gap)
            if gap > longest:  # noqa: PLR1730 - max() costs twice as much, on every chunk
                longest = gap
        except Exception as error:  # noqa: BLE001 - rule 1: never hurt the host
            faults.contain("send", error)

    return watched_send, arm, settle
