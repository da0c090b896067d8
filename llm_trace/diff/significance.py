"""Whether two sides differ by more than their own noise.

The samples of one window are not independent: a full queue delays everybody who stands in it, so
the usual standard error is far too small. A window is therefore cut into blocks of time, and the
block is the unit. A mean is the ratio of sums over blocks, its variance is the jackknife's; what a
block still has in common with the one before makes it larger and worth fewer degrees of freedom, as
for a first-order autoregression. Two sides are compared by Welch's t; shapes by trying every way to
deal a few long blocks out to two sides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from typing import Final, NamedTuple

from llm_trace import student

LEAST_BLOCKS: Final = 4
"""Blocks with requests under which a side says nothing of its noise."""

CONFIDENCE: Final = 0.95

RESOLUTION: Final = 1e-6
"""Seconds under which a difference of two means is none: sums are scraped as rounded numbers."""

LONG_BLOCKS: Final = 6
"""Of a side, for shapes: all 924 ways to choose six of twelve can be tried."""

HALF: Final = 0.5
"""Requests under which a block has none: growth is extrapolated, and so no whole number."""

_MOST_ALIKE: Final = 0.9

Blocks = Sequence[float]


class Mean(NamedTuple):
    """A mean over blocks, and how sure it is."""

    value: float
    variance: float
    blocks: int
    """Blocks that had requests."""
    freedom: float
    """Degrees of freedom of the variance."""


class Change(NamedTuple):
    """The difference of two means; interval and probability are None where noise is unknown."""

    value: float
    low: float | None = None
    high: float | None = None
    p: float | None = None
    """How often pure noise would differ as much."""


def mean(seconds: Blocks, requests: Blocks) -> Mean | None:
    """Seconds a request, and its variance; None without requests."""
    pairs = [(took, n) for took, n in zip(seconds, requests, strict=True) if n >= HALF]
    if not pairs:
        return None
    whole_s, whole_n = sum(took for took, _ in pairs), sum(n for _, n in pairs)
    value, number = whole_s / whole_n, len(pairs)
    if number == 1:
        return Mean(value, math.inf, 1, 0)
    left_out = [(whole_s - took) / (whole_n - n) for took, n in pairs]
    middle = sum(left_out) / number
    spread = sum((one - middle) ** 2 for one in left_out) * (number - 1) / number
    factor = _inflation([took / n - value for took, n in pairs])
    return Mean(value, spread * factor, number, max(1.0, (number - 1) / factor))


def _inflation(deviations: Blocks) -> float:
    """By how much blocks that resemble their neighbours understate the variance of their mean."""
    whole = sum(one * one for one in deviations)
    if not whole:
        return 1.0
    alike = sum(one * other for one, other in pairwise(deviations)) / whole
    alike += 1 / len(deviations)  # the estimate is too low by about that
    alike = min(_MOST_ALIKE, max(0.0, alike))
    return (1 + alike) / (1 - alike)


def change(a: Mean, b: Mean) -> Change:
    """B less A, by Welch's t."""
    value = b.value - a.value
    if min(a.blocks, b.blocks) < LEAST_BLOCKS:
        return Change(value)
    variance = a.variance + b.variance
    if abs(value) < RESOLUTION:
        return Change(value, value, value, 1.0)
    if not variance:
        return Change(value, value, value, 0.0)
    shares = ((one.variance / variance) ** 2 / one.freedom for one in (a, b))
    freedom, error = 1 / sum(shares), math.sqrt(variance)
    reach = error * student.quantile(CONFIDENCE, freedom)
    return Change(value, value - reach, value + reach, student.two_sided(value / error, freedom))


def holm(probabilities: Mapping[str, float | None]) -> dict[str, float | None]:
    """The probabilities corrected for how many were looked at, so that one in twenty runs errs."""
    known = sorted((p, name) for name, p in probabilities.items() if p is not None)
    corrected: dict[str, float | None] = dict.fromkeys(probabilities)
    least = 0.0
    for rank, (p, name) in enumerate(known):
        least = max(least, min(1.0, p * (len(known) - rank)))
        corrected[name] = least
    return corrected


# --- shapes -----------------------------------------------------------------------------------


def shape(a: Mapping[float, Blocks], b: Mapping[float, Blocks]) -> float | None:
    """How often blocks dealt out anew differ as much in their buckets as the sides do.

    The distance is Kolmogorov's: the largest gap between the two shares of samples up to a bound.
    None where a side has too few blocks with samples.
    """
    bounds = sorted(set(a) | set(b))
    one, other = (_long(_columns(bounds, side)) for side in (a, b))
    if min(len(one), len(other)) < LEAST_BLOCKS:
        return None
    every = one + other
    whole = [sum(column) for column in zip(*every, strict=True)]
    seen = _distance(one, whole)
    dealt = [_distance(chosen, whole) for chosen in combinations(every, len(one))]
    return sum(distance >= seen - 1e-12 for distance in dealt) / len(dealt)


def _columns(bounds: Sequence[float], buckets: Mapping[float, Blocks]) -> list[list[float]]:
    """For each block with samples, its counts by bound."""
    rows = [buckets[bound] for bound in bounds if bound in buckets]
    if not rows or len(rows) < len(bounds):
        return []
    return [list(column) for column in zip(*rows, strict=True) if column[-1] > 0]


def _long(blocks: Sequence[Sequence[float]]) -> list[list[float]]:
    """Neighbours added up, so that few blocks are left, which have little in common."""
    number = min(LONG_BLOCKS, len(blocks))
    cuts = [len(blocks) * n // number for n in range(number + 1)] if number else []
    groups = (blocks[start:end] for start, end in pairwise(cuts))
    return [[sum(column) for column in zip(*group, strict=True)] for group in groups]


def _distance(chosen: Sequence[Sequence[float]], whole: Sequence[float]) -> float:
    mine = [sum(column) for column in zip(*chosen, strict=True)]
    rest = [every - count for every, count in zip(whole, mine, strict=True)]
    return max(abs(a - b) for a, b in zip(_shares(mine), _shares(rest), strict=True))


def _shares(counts: Sequence[float]) -> list[float]:
    return [count / counts[-1] for count in counts]


def quantile(share: float, buckets: Mapping[float, Blocks]) -> float | None:
    """The quantile that the buckets allow, by straight lines inside them; None without samples.

    Above the last finite bound nothing is known but the bound, which is given.
    """
    counts = [(bound, sum(buckets[bound])) for bound in sorted(buckets)]
    if not counts or counts[-1][1] <= 0:
        return None
    wanted = share * counts[-1][1]
    below, under = 0.0, 0.0
    for bound, count in counts:
        if count >= wanted and count > under:
            inside = (wanted - under) / (count - under)
            return below if math.isinf(bound) else below + (bound - below) * inside
        below, under = (below if math.isinf(bound) else bound), count
    return below
