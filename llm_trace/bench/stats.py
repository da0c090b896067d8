"""What a handful of measured seconds can honestly be said to be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median
from typing import Final, NamedTuple

TAILS: Final = ((0.9, 10), (0.95, 20), (0.99, 100))
"""Quantiles, and the samples under which each is no more than the largest one seen."""

CONFIDENCE: Final = 0.95


class Stats(NamedTuple):
    """A distribution in numbers; a quantile that the samples cannot give is None."""

    samples: int
    mean: float
    least: float
    median: float
    low: float | None
    """The median's interval of `CONFIDENCE`; None under six samples."""
    high: float | None
    p90: float | None
    p95: float | None
    p99: float | None
    most: float


def describe(values: Sequence[float]) -> Stats | None:
    """Describe `values`; None where there are none."""
    if not values:
        return None
    ordered = sorted(values)
    low, high = median_interval(ordered) or (None, None)
    p90, p95, p99 = (rank(ordered, q) if len(ordered) >= least else None for q, least in TAILS)
    return Stats(
        samples=len(ordered),
        mean=fmean(ordered),
        least=ordered[0],
        median=median(ordered),
        low=low,
        high=high,
        p90=p90,
        p95=p95,
        p99=p99,
        most=ordered[-1],
    )


def rank(ordered: Sequence[float], share: float) -> float:
    """The nearest-rank quantile of sorted values: one that was measured."""
    return ordered[max(1, math.ceil(share * len(ordered))) - 1]


def median_interval(ordered: Sequence[float]) -> tuple[float, float] | None:
    """The order statistics between which the true median lies, whatever the distribution.

    Each sample is as likely above the median as below, so the number below is binomial.
    """
    number = len(ordered)
    outside, below = 0.0, 0
    while (outside := outside + math.comb(number, below) / 2**number) <= (1 - CONFIDENCE) / 2:
        below += 1
    return (ordered[below - 1], ordered[number - below]) if below else None
