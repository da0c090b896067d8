"""Samples on their way into the accumulators: taken one by one, added by the column.

A request leaves some thirty samples. To add each by itself would be thirty calls with a lock each;
so a request leaves one row, and rows of one kind are added together, column by column, when enough
of them wait or when somebody reads. Sums are exact: they are of integer nanoseconds.
"""

from __future__ import annotations

import math
import os
import threading
import weakref
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from prometheus_client.samples import Exemplar

from llm_trace.core import faults
from llm_trace.core.identity import TraceIdentity
from llm_trace.core.record import ChunkGaps

Mark = tuple[TraceIdentity, int] | None
"""Who a request was in its trace, and when it ended in Unix ns; None where it has no trace."""

WAITING: Final = 32
"""Rows that may wait: adding them takes a fraction of a millisecond."""


class Plan:
    """Where the columns of one kind of request go."""

    __slots__ = ("counts", "durations", "gaps", "seconds")

    def __init__(
        self,
        durations: Sequence[Durations],
        counts: Sequence[Any],
        seconds: Sequence[Any],
        gaps: Sequence[Any] = (),
    ) -> None:
        self.durations = durations
        self.counts = counts
        """Counters of things."""
        self.seconds = seconds
        """Counters of time."""
        self.gaps = gaps
        """Histograms of what a request counted itself."""


class Row(NamedTuple):
    """The samples of one request, in the order of its plan."""

    durations: Sequence[float]
    """ns."""
    counts: Sequence[int]
    seconds: Sequence[int]
    """ns."""
    gaps: Sequence[ChunkGaps]
    mark: Mark


class Samples:
    """Rows that wait to be added.

    Args:
        room: How many may wait. 1 where other processes read what we write.
    """

    def __init__(self, room: int = WAITING) -> None:
        self._room = room
        self._rows: deque[tuple[Plan, Row]] = deque()
        self._adding = threading.Lock()
        _all.add(self)

    def add(self, plan: Plan, row: Row) -> None:
        """Take the samples of one request.

        Never waits: the garbage collector may end a request in the midst of adding, on this thread.
        """
        self._rows.append((plan, row))
        if len(self._rows) >= self._room and self._adding.acquire(blocking=False):
            try:
                self._add_all()
            finally:
                self._adding.release()

    def drain(self) -> None:
        """Add all that wait; who reads the accumulators calls it first."""
        with self._adding:
            self._add_all()

    def _add_all(self) -> None:
        kinds: dict[Plan, list[Row]] = {}
        while self._rows:
            plan, row = self._rows.popleft()
            kinds.setdefault(plan, []).append(row)
        for plan, rows in kinds.items():
            _add(plan, rows)

    def forked(self) -> None:
        """The parent may have been adding when this process was forked from it."""
        self._adding = threading.Lock()


_all: weakref.WeakSet[Samples] = weakref.WeakSet()


def _forked() -> None:
    for samples in tuple(_all):
        samples.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _add(plan: Plan, rows: Sequence[Row]) -> None:
    durations, counts, seconds, gaps, marks = zip(*rows, strict=True)
    for histogram, column in zip(plan.durations, zip(*durations, strict=True), strict=True):
        histogram.add(column, marks)
    for counter, column in zip(plan.counts, zip(*counts, strict=True), strict=True):
        counter.inc(sum(column))
    for counter, column in zip(plan.seconds, zip(*seconds, strict=True), strict=True):
        counter.inc(sum(column) / 1e9)
    for histogram, counted in zip(plan.gaps, zip(*gaps, strict=True), strict=True):
        add_gaps(histogram, counted)


class Durations:
    """A histogram of seconds that takes nanoseconds, many at once.

    prometheus_client has no public call for it. Its children keep one value per bucket and one for
    the sum, in every mode; where a version does otherwise, each goes by the public call.
    """

    __slots__ = ("_bounds", "_buckets", "_histogram", "_sum")

    def __init__(self, histogram: Any) -> None:
        self._histogram = histogram
        self._buckets = getattr(histogram, "_buckets", ())
        self._sum = getattr(histogram, "_sum", None)
        bounds = getattr(histogram, "_upper_bounds", ())
        self._bounds = [round(b * 1e9) if math.isfinite(b) else b for b in bounds]

    def add(self, column: Sequence[float], marks: Sequence[Mark]) -> None:
        """Add a column of ns, and for each bucket the exemplar that came last."""
        if len(self._buckets) != len(self._bounds) or self._sum is None:
            self._add_publicly(column, marks)
            return
        cells = [bisect_left(self._bounds, value) for value in column]
        for cell, number in Counter(cells).items():
            self._buckets[cell].inc(number)
        self._sum.inc(sum(column) / 1e9)
        traced = zip(cells, column, marks, strict=True)
        latest = {cell: (value, mark) for cell, value, mark in traced if mark is not None}
        for cell, (value, mark) in latest.items():
            self._buckets[cell].set_exemplar(Exemplar(ids(mark[0]), value / 1e9, mark[1] / 1e9))

    def _add_publicly(self, column: Sequence[float], marks: Sequence[Mark]) -> None:
        for value, mark in zip(column, marks, strict=True):
            self._histogram.observe(value / 1e9, ids(mark[0]) if mark else None)


def ids(identity: TraceIdentity) -> dict[str, str]:
    """The labels of an exemplar that leads to this trace."""
    return {"trace_id": f"{identity.trace_id:032x}", "span_id": f"{identity.span_id:016x}"}


def add_gaps(histogram: Any, requests: Sequence[ChunkGaps]) -> None:
    """Add the counted gaps of `requests` to `histogram`; see `Durations` on its insides."""
    buckets = getattr(histogram, "_buckets", ())
    total = getattr(histogram, "_sum", None)
    fitting = [g for g in requests if len(g.counts) == len(buckets) and math.isfinite(g.total)]
    if total is None or len(fitting) < len(requests):
        faults.drop("chunk_gaps")
    if total is None or not fitting:
        return
    for bucket, column in zip(buckets, zip(*(g.counts for g in fitting), strict=True), strict=True):
        if number := sum(column):
            bucket.inc(number)
    total.inc(sum(g.total for g in fitting) / 1e9)
