"""Gaps between token-bearing chunks, counted into buckets as they pass: nothing kept per chunk."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from llm_trace.core.record import ChunkGaps
from llm_trace.semconv import TOKEN_BUCKETS

BOUNDS_NS: Final = tuple(round(bound * 1e9) for bound in TOKEN_BUCKETS)


class GapCounter:
    """Counts of one request's gaps; the memory is one small list."""

    __slots__ = ("counts", "longest")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_NS) + 1)
        self.longest = 0

    def add(self, gap: int) -> None:
        """Count one gap, in ns."""
        self.counts[bisect_left(BOUNDS_NS, gap)] += 1
        if gap > self.longest:  # noqa: PLR1730 - max() costs twice as much, on every chunk
            self.longest = gap

    def freeze(self, total: int) -> ChunkGaps | None:
        """The counts, or None when there was no gap; `total` is their sum in ns."""
        return ChunkGaps(self.counts, total, self.longest) if any(self.counts) else None
