"""Gaps between token-bearing chunks, counted into buckets as they pass: nothing kept per chunk."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from llm_trace.core.record import ChunkGaps
from llm_trace.core.ticks import BOUNDS_NS

_EDGES: Final = (-1, *BOUNDS_NS, 2**63)


class GapCounter:
    """Counts of one request's gaps; the memory is one small list."""

    __slots__ = ("counts", "longest")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_NS) + 1)
        self.longest = 0

    def add(self, gap: int) -> None:
        """Count one gap, in ns."""
        self.place(gap)
        self.longest = max(self.longest, gap)

    def place(self, gap: int) -> tuple[int, int, int]:
        """Count a gap in its bucket, and return the bucket: above, up to, and its number.

        Gaps of one stream are alike, so the next one is most often of the same bucket.
        """
        cell = bisect_left(BOUNDS_NS, gap)
        self.counts[cell] += 1
        return _EDGES[cell], _EDGES[cell + 1], cell

    def freeze(self, total: int) -> ChunkGaps | None:
        """The counts, or None when there was no gap; `total` is their sum in ns."""
        return ChunkGaps(tuple(self.counts), total, self.longest) if any(self.counts) else None
