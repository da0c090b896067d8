"""What is known of an event loop's blocks: when a timer was due, and when the loop let it run.

A loop that runs one long callback serves nobody else for as long: every request that waits in it
waits for that callback, and the engine looks slow. One object a loop; pure, it is told of time.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

LEAST: Final = 2_000_000
"""Ns: a timer that runs less than this late is on time; loops round their timers to 1 ms."""

_KEPT: Final = 64


class _Block(NamedTuple):
    """The loop ran nothing that was due from `due` to `ran`, monotonic ns."""

    due: int
    ran: int


class LoopLag:
    """The blocks of one loop that a request now in flight may have waited for.

    Of two blocks the older is of use only where it was the longer, so what is kept gets shorter
    from the oldest to the newest, and there is little of it.
    """

    __slots__ = ("_blocks", "due")

    def __init__(self) -> None:
        self.due = 0
        """When the timer that is set should run; 0 before the first one."""
        self._blocks: deque[_Block] = deque(maxlen=_KEPT)

    def ran(self, now: int) -> int:
        """The timer runs at `now`: how late it is, ns."""
        late = max(0, now - self.due)
        if late >= LEAST:
            while self._blocks and self._blocks[-1].ran - self._blocks[-1].due <= late:
                self._blocks.pop()
            self._blocks.append(_Block(self.due, now))
        return late

    def longest(self, since: int, now: int) -> int:
        """The longest block within `since` and `now`, ns; 0 for none.

        A block that still goes on counts: whoever asks runs in it.
        """
        longest = 0
        pending = _Block(self.due, now) if self.due and now - self.due >= LEAST else None
        for due, ran in (*self._blocks, pending) if pending else self._blocks:
            longest = max(longest, ran - max(due, since))
        return longest
