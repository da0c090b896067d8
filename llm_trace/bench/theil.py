"""The median of all slopes between two samples: a line that a few stalled requests do not move.

Theil's estimator with Sen's interval (Journal of the American Statistical Association 63, 1968):
the slopes whose ranks Kendall's tau would not call unusual. No distribution is assumed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from statistics import NormalDist, median
from typing import Final, NamedTuple

from llm_trace.bench.stats import CONFIDENCE

MOST: Final = 600
"""Samples of which every pair is looked at; of more, so many evenly chosen ones are."""

Point = tuple[float, float]


class Slope(NamedTuple):
    """The median slope, its interval of `CONFIDENCE`, and where its line starts."""

    slope: float
    low: float
    high: float
    start: float
    """The median of what the slope leaves over."""


def slope(points: Sequence[Point]) -> Slope | None:
    """The median slope; None where all samples stand at one place."""
    chosen = points if len(points) <= MOST else points[:: math.ceil(len(points) / MOST)]
    slopes = sorted(
        (y1 - y0) / (x1 - x0) for (x0, y0), (x1, y1) in combinations(chosen, 2) if x0 != x1
    )
    if not slopes:
        return None
    reach = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * math.sqrt(_variance(chosen))
    low = max(0, round((len(slopes) - reach) / 2) - 1)
    high = min(len(slopes) - 1, round((len(slopes) + reach) / 2))
    middle = median(slopes)
    start = median(y - middle * x for x, y in chosen)
    return Slope(middle, slopes[low], slopes[high], start)


def _variance(points: Sequence[Point]) -> float:
    """Of Kendall's score, with as many samples of one length as there are."""
    number = len(points)
    ties = Counter(x for x, _ in points).values()
    return (_score(number) - sum(map(_score, ties))) / 18


def _score(number: int) -> int:
    return number * (number - 1) * (2 * number + 5)
