"""The engine core's clock: monotonic seconds of its host, as our nanoseconds.

On one Linux host it is our own clock. A core on another host, or in another time namespace, shows
by stamps that no one clock can give; from then on its stamps are moved so that the end of each step
falls on the moment at which this process heard of it.
"""

from __future__ import annotations

import math

TOLERANCE_NS = 1_000_000


class EngineClock:
    """Converts stamps, and watches whether they can be of this host."""

    __slots__ = ("_shift", "foreign")

    def __init__(self) -> None:
        self.foreign = False
        self._shift = 0

    def observe(self, step: float, now: int) -> int:
        """The end of a step, in ns; `now` is when this process heard of it."""
        at = to_ns(step)
        if at and (self.foreign or at > now + TOLERANCE_NS):
            return self.move(at, now)
        return at or now

    def move(self, at: int, now: int) -> int:
        """The clock is foreign: its `at` was our `now`, as near as anyone can say."""
        self.foreign = True
        self._shift = now - at
        return now

    def contradicts(self, queued: float, handed_off: int) -> bool:
        """Whether a request was queued before it was handed off, on a clock taken for ours."""
        at = to_ns(queued)
        return not self.foreign and 0 < at < handed_off - TOLERANCE_NS

    def place(self, stamp: float) -> int:
        """A stamp of the current step, in ns; 0 for what is no stamp."""
        at = to_ns(stamp)
        return at + self._shift if at else 0


def to_ns(stamp: object) -> int:
    """Monotonic seconds as ns; 0 for None, NaN, zero, negatives and what is no number."""
    if not isinstance(stamp, int | float) or not math.isfinite(stamp) or stamp <= 0:
        return 0
    return round(stamp * 1e9)
