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

Arm = Callable[[TokenDetector, int, GapCounter], None]


class Watcher(Protocol):
    """Who hears of the messages that are not usual."""

    timeline: Timeline

    def watch(self, message: Message, now: int) -> None:
        """A message was sent, before the first token."""

    def unusual(self, message: Message, now: int, seen: int) -> None:
        """A message after the first token carried `seen`, in bits of `Seen`."""

    def client_left(self) -> None:
        """The server's `send` says that nobody listens."""


def watched(  # noqa: C901 - one path, laid out for cost
    send: Send, now: Callable[[], int], watcher: Watcher
) -> tuple[Send, Arm]:
    """The `send` for the app, and the way to arm its hot path.

    Args:
        send: The server's `send`.
        now: Monotonic ns.
        watcher: Hears of what is not usual.

    Returns:
        The `send`; and `arm(detector, bits, gaps)`, after which a chunk that carries `bits` and
        nothing else only counts its gap.
    """
    timeline = watcher.timeline
    detector: TokenDetector | None = None
    held: bytes | bytearray = b""
    head = rest = b""
    usual = low = high = cell = 0
    gaps = GapCounter()
    counts = gaps.counts

    def arm(fed: TokenDetector, bits: int, counter: GapCounter) -> None:
        nonlocal detector, held, head, rest, usual, gaps, counts
        detector, held, (head, rest) = fed, fed.held, fed.usual
        usual, gaps, counts = bits, counter, counter.counts

    async def watched_send(message: Message) -> None:  # noqa: C901 - see above
        nonlocal low, high, cell, head, rest
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
            if not seen:
                seen = detector.feed(body)
                head, rest = detector.usual  # which may have been learned afresh
            if seen != usual or not message.get("more_body"):
                watcher.unusual(message, at, seen)
                return
            gap = at - timeline.last_token_sent
            timeline.last_token_sent = at
            if low < gap <= high:
                counts[cell] += 1
            else:
                low, high, cell = gaps.place(gap)
            if gap > gaps.longest:  # noqa: PLR1730 - max() costs twice as much, on every chunk
                gaps.longest = gap
        except Exception as error:  # noqa: BLE001 - rule 1: never hurt the host
            faults.contain("send", error)

    return watched_send, arm
