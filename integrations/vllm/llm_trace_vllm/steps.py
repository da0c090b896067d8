"""The steps of one engine, and what they were to each request that decodes in them.

A running request gets a token in nearly every step, so its ticks are those of the engine: they are
kept once, in two arrays, and a request remembers where it began and the few steps that it missed.
So a token costs the hot loop one comparison, and a request its sums once, at its end.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import sub
from typing import Final, NamedTuple

from llm_trace.core.ticks import Ticks

PREEMPTED: Final = "preempted"
PREFILL: Final = "prefill"

MAX_STEPS: Final = 2**17
"""Steps that are kept; of a request that decodes for longer the ticks are not known any more."""

MAX_NOTES: Final = 2**14
"""Missed steps, and steps of several tokens, that are kept for one request."""


class Steps:
    """When the steps of one engine that brought outputs were over, in monotonic ns."""

    __slots__ = ("_prefills", "_stamps", "base", "last")

    def __init__(self) -> None:
        self._stamps = array("q")
        self._prefills = bytearray()
        self.base = 0
        """The number of the first step that is kept."""
        self.last = 0
        """The end of the latest step; 0 before the first."""

    @property
    def number(self) -> int:
        """The number of the latest step."""
        return self.base + len(self._stamps) - 1

    def add(self, at: int) -> None:
        """A step is over; the oldest half is dropped once there are too many."""
        if at <= self.last:  # another part of the same step
            return
        if len(self._stamps) >= MAX_STEPS:
            self._forget(MAX_STEPS // 2)
        self._stamps.append(at)
        self._prefills.append(0)
        self.last = at

    def _forget(self, number: int) -> None:
        del self._stamps[:number]
        del self._prefills[:number]
        self.base += number

    def has_prefill(self) -> None:
        """The latest step computed part of a prompt, too."""
        if self._prefills:
            self._prefills[-1] = 1

    def place(self, at: int) -> int:
        """The number of the step that was over at `at`."""
        return self.base + bisect_left(self._stamps, at)

    def gaps(self, first: int, last: int) -> Sequence[int]:
        """The times from one step to the next, from a step to a later one."""
        stamps = self._stamps[first - self.base : last - self.base + 1]
        return list(map(sub, stamps[1:], stamps))

    def span(self, first: int, last: int) -> int:
        """The time from a step to a later one."""
        return self._stamps[last - self.base] - self._stamps[first - self.base]

    def prefilled(self, before: int, last: int) -> bool:
        """Whether a step after `before`, up to `last`, computed part of a prompt."""
        return 1 in self._prefills[before - self.base + 1 : last - self.base + 1]


class Gap(NamedTuple):
    """From one output of a request to its next: the numbers of their steps."""

    before: int
    after: int
    preempted: bool = False


class Decoding:
    """One request's place among the steps of its engine; it began in the latest.

    Args:
        steps: Those of its engine.
        tokens: What its first output brought.
    """

    __slots__ = ("_extra", "_first", "_full", "_missed", "_several", "steps")

    def __init__(self, steps: Steps, tokens: int) -> None:
        self.steps = steps
        self._first = steps.number
        self._extra = tokens - 1
        """Tokens that came with the first, in no time."""
        self._missed: list[Gap] = []
        self._several: dict[int, int] = {}
        self._full = False

    def move(self, steps: Steps) -> None:
        """The engine of its first step is known only now."""
        self.steps = steps
        self._first = steps.number

    def tick(self, before: int, tokens: int, *, preempted: bool) -> None:
        """An output in the latest step that is no single token straight after the last one.

        Args:
            before: When the step of the output before it was over.
            tokens: What it brought.
            preempted: Whether the request was taken out of the batch in between.
        """
        last, now = self.steps.place(before), self.steps.number
        if len(self._missed) + len(self._several) >= MAX_NOTES:
            self._full = True
            return
        if now - last > 1 or preempted:
            self._missed.append(Gap(last, now, preempted))
        if tokens > 1:
            self._several[now] = tokens

    def read(self, last_token: int) -> Ticks | None:
        """The ticks up to the one at `last_token`; None where some are not known any more."""
        steps = self.steps
        last = min(steps.place(last_token), steps.number)
        if self._full or self._first < steps.base:
            return None
        if not self._missed and not self._several and not self._extra:  # nearly always
            first = self._first
            return Ticks(
                steps.gaps(first, last),
                {},
                lambda index: (
                    PREFILL if steps.prefilled(first + index, first + index + 1) else None
                ),
            )
        return self._read_one_by_one(last)

    def _read_one_by_one(self, last: int) -> Ticks:
        gaps = list(self._gaps(last))
        times = [self.steps.span(gap.before, gap.after) for gap in gaps]
        several = {
            i: self._several[g.after] for i, g in enumerate(gaps) if g.after in self._several
        }
        if self._extra:
            gaps.insert(0, Gap(self._first, self._first))
            times.insert(0, 0)
            several = {0: self._extra, **{i + 1: n for i, n in several.items()}}
        return Ticks(times, several, lambda index: self._cause(gaps[index]))

    def _gaps(self, last: int) -> Iterator[Gap]:
        at = self._first
        for missed in (*self._missed, None):
            until = last if missed is None else missed.before
            yield from (Gap(step, step + 1) for step in range(at, until))
            if missed is not None:
                yield missed
                at = missed.after

    def _cause(self, gap: Gap) -> str | None:
        if gap.preempted:
            return PREEMPTED
        return PREFILL if self.steps.prefilled(gap.before, gap.after) else None
