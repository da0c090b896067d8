"""A straight line through measurements: what a request costs, and what each of its chunks does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Line(NamedTuple):
    """`fixed + each * x`."""

    fixed: float
    each: float


def fit(xs: Sequence[float], ys: Sequence[float], noise: Sequence[float]) -> Line:
    """The line closest to the points, those with less `noise` (one number each) counting more."""
    weights = [1 / n**2 for n in noise]
    total = sum(weights)
    x = sum(w * v for w, v in zip(weights, xs, strict=True)) / total
    y = sum(w * v for w, v in zip(weights, ys, strict=True)) / total
    rise = sum(w * (a - x) * (b - y) for w, a, b in zip(weights, xs, ys, strict=True))
    run = sum(w * (a - x) ** 2 for w, a in zip(weights, xs, strict=True))
    each = rise / run
    return Line(y - each * x, each)
