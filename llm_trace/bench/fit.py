"""Prefill time per uncached token: a straight line through the samples, and how sure it is.

Ordinary least squares of TTFT over computed prompt tokens. Long prompts scatter more than short
ones, so the standard error is the one that does not assume equal spread (HC3: each residual is
weighed by how much its own point pulls the line), and the interval is Student's, with the degrees
of freedom of the lengths that the error comes from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median
from typing import Final, NamedTuple

from llm_trace import student
from llm_trace.bench import theil
from llm_trace.bench.stats import CONFIDENCE
from llm_trace.bench.theil import Point, Slope

LEAST: Final = 6
"""Samples under which no line is drawn."""


class Fit(NamedTuple):
    """TTFT is about `start + slope × tokens`, over the tokens that were measured."""

    slope: float
    """Seconds per uncached token."""
    low: float
    high: float
    """The slope's interval of `CONFIDENCE`."""
    start: float
    """Seconds that no token accounts for."""
    samples: int
    least_tokens: float
    most_tokens: float
    explained: float
    """R squared: the share of the spread that the line accounts for."""
    resistant: Slope
    """The slope again, as a few stalled requests do not move it."""
    bend: float
    """The largest distance of one length's median from the resistant line, as its share."""


def fit(groups: Sequence[Sequence[Point]]) -> Fit | None:
    """Fit the line; None where two lengths or enough samples are missing.

    Args:
        groups: The points of each prompt length: computed tokens, and seconds of TTFT.
    """
    groups = [group for group in groups if group]
    points = [point for group in groups for point in group]
    tokens = [x for x, _ in points]
    resistant = theil.slope(points)
    if len(points) < LEAST or resistant is None:
        return None
    middle, level = fmean(tokens), fmean(y for _, y in points)
    spread = sum((x - middle) ** 2 for x in tokens)
    slope = sum((x - middle) * (y - level) for x, y in points) / spread
    start = level - slope * middle
    parts = [_part(group, len(points), middle, spread, slope, start) for group in groups]
    error = math.sqrt(sum(parts)) / spread
    reach = error * student.quantile(CONFIDENCE, _freedom(parts, groups))
    return Fit(
        slope,
        slope - reach,
        slope + reach,
        start,
        len(points),
        min(tokens),
        max(tokens),
        _explained(points, level, slope, start),
        resistant,
        _bend(groups, resistant),
    )


def _part(
    group: Sequence[Point],
    number: int,
    middle: float,
    spread: float,
    slope: float,
    start: float,
) -> float:
    """What one length adds to the slope's variance, before it is divided by the spread squared."""
    total = 0.0
    for x, y in group:
        pull = 1 / number + (x - middle) ** 2 / spread
        rest = (y - start - slope * x) / max(1 - pull, 1e-9)  # a point that is the line has no rest
        total += ((x - middle) * rest) ** 2
    return total


def _freedom(parts: Sequence[float], groups: Sequence[Sequence[Point]]) -> float:
    """Degrees of freedom (Satterthwaite): as few as the lengths have that make the variance."""
    pairs = zip(parts, groups, strict=True)
    shares = sum(part**2 / max(1, len(group) - 1) for part, group in pairs)
    return sum(parts) ** 2 / shares if shares else 1.0


def _explained(points: Sequence[Point], level: float, slope: float, start: float) -> float:
    whole = sum((y - level) ** 2 for _, y in points)
    rest = sum((y - start - slope * x) ** 2 for x, y in points)
    return 1 - rest / whole if whole else 0.0


def _bend(groups: Sequence[Sequence[Point]], line: Slope) -> float:
    middles = [(median(x for x, _ in group), median(y for _, y in group)) for group in groups]
    return max(abs(y - line.start - line.slope * x) / y for x, y in middles if y > 0)
