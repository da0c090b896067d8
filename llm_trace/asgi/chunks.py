"""The hot path: what a streamed chunk costs once the first token is out.

Every chunk of every stream runs through `send` here, so it is written for cost: a closure, whose
locals cost half of what attributes do, one clock read, one look at the bytes, one comparison for
the gap's bucket. What is no usual chunk goes to the exchange, which is written for reading.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from llm_trace.asgi.gaps import GapCounter
from llm_trace.asgi.types import Message, Send
from llm_trace.core import faults
from llm_trace.core.timeline import Timeline

Feed = Callable[[bytes], int]
Arm = Callable[[Feed, int, GapCounter], None]


class Watcher(Protocol):
    """Who hears of the messages that are not usual."""

    timeline: Timeline

    def watch(self, message: Message, now: int) -> None:
        """A message was sent, before the first token."""

    def unusual(self, message: Message, now: int, seen: int) -> None:
        """A message after the first token carried `seen`, in bits of `Seen`."""

    def client_left(self) -> None:
        """The server's `send` says that nobody listens."""


def watched(send: Send, now: Callable[[], int], watcher: Watcher) -> tuple[Send, Arm]:
    """The `send` for the app, and the way to arm its hot path.

    Args:
        send: The server's `send`.
        now: Monotonic ns.
        watcher: Hears of what is not usual.

    Returns:
        The `send`; and `arm(feed, usual, gaps)`, after which a chunk for which `feed` returns
        `usual` only counts its gap.
    """
    timeline = watcher.timeline
    feed: Feed = _unarmed
    usual = low = high = cell = 0
    gaps = GapCounter()
    counts = gaps.counts

    def arm(armed_feed: Feed, bits: int, counter: GapCounter) -> None:
        nonlocal feed, usual, gaps, counts
        feed, usual, gaps, counts = armed_feed, bits, counter, counter.counts

    async def watched_send(message: Message) -> None:
        nonlocal low, high, cell
        try:
            await send(message)
        except OSError:
            watcher.client_left()
            raise
        at = now()
        try:
            if not usual:
                watcher.watch(message, at)
                return
            seen = feed(message.get("body", b""))
            if seen != usual or not message.get("more_body"):
                watcher.unusual(message, at, seen)
                return
            gap = at - timeline.last_token_sent
            timeline.last_token_sent = at
            if low < gap <= high:
                counts[cell] += 1
            else:
                low, high, cell = gaps.place(gap)
            gaps.longest = max(gaps.longest, gap)
        except Exception as error:  # noqa: BLE001 - rule 1: never hurt the host
            faults.contain("send", error)

    return watched_send, arm


def _unarmed(_body: bytes) -> int:
    return 0
