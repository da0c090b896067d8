"""Student's t distribution: how far a mean of few samples may stray.

The incomplete beta function by its continued fraction (Abramowitz and Stegun 26.5.8), evaluated
as Lentz does; quantiles by halving. Exact to about ten digits, which no measurement needs.
"""

from __future__ import annotations

import math
from typing import Final

_TINY: Final = 1e-300
_EXACT: Final = 1e-12
_STEPS: Final = 400
_HALVINGS: Final = 200


def two_sided(t: float, freedom: float) -> float:
    """Return the probability of a value at least as far from 0 as `t`.

    Args:
        t: The statistic; infinite where the spread is none.
        freedom: Degrees of freedom, above 0.
    """
    if math.isinf(t):
        return 0.0
    return _incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5)


def quantile(confidence: float, freedom: float) -> float:
    """Return the half width of the central interval of `confidence`, in standard errors."""
    low, high = 0.0, 1.0
    while two_sided(high, freedom) > 1 - confidence:
        high *= 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if two_sided(middle, freedom) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def _incomplete_beta(x: float, a: float, b: float) -> float:
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    if x < (a + 1) / (a + b + 2):  # where the fraction converges
        return front * _fraction(x, a, b) / a
    return 1 - front * _fraction(1 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    c, d = 1.0, 1 / _away(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _STEPS):
        for part in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d, c = 1 / _away(1 + part * d), _away(1 + part / c)
            value *= d * c
        if abs(d * c - 1) < _EXACT:
            break
    return value


def _away(value: float) -> float:
    """Keep a divisor off zero."""
    return value if abs(value) > _TINY else _TINY
