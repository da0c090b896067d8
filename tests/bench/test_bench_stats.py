"""What a handful of samples may be said to be."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_trace.bench.stats import Stats, describe, median_interval


def test_a_distribution_in_numbers():
    """Quantiles are values that were measured; a hundred samples have a 99th percentile."""
    assert describe([n / 100 for n in range(100, 0, -1)]) == Stats(
        samples=100,
        mean=pytest.approx(0.505),
        least=0.01,
        median=pytest.approx(0.505),
        low=0.40,
        high=0.61,
        p90=0.9,
        p95=0.95,
        p99=0.99,
        most=1.0,
    )


@pytest.mark.parametrize(
    ("samples", "given"),
    [(9, ()), (10, ("p90",)), (20, ("p90", "p95")), (100, ("p90", "p95", "p99"))],
)
def test_a_quantile_needs_samples(samples, given):
    """With fewer it would be no more than the largest one: it is absent."""
    stats = describe([1.0] * samples)

    assert tuple(n for n in ("p90", "p95", "p99") if getattr(stats, n) is not None) == given


def test_nothing_measured_is_nothing_described():
    """No zeros."""
    assert describe([]) is None


@pytest.mark.parametrize(("samples", "interval"), [(5, None), (6, (0, 5)), (12, (2, 9))])
def test_the_medians_interval_is_binomial(samples, interval):
    """Six samples are the fewest: all on one side has the probability 2 / 64."""
    assert median_interval(range(samples)) == interval


def test_the_interval_holds_the_median_as_often_as_it_says():
    """At least 95 times in 100, for a distribution with a long tail."""
    draw = random.Random(7)  # noqa: S311 - the same draws every time
    held = 0
    for _ in range(2000):
        low, high = median_interval(sorted(draw.expovariate(1) for _ in range(15)))
        held += low <= 0.6931 <= high

    assert 0.95 <= held / 2000 <= 0.98


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=300))
def test_the_numbers_are_in_order(values):
    """Least, low, median, high, most; and each quantile that is there."""
    stats = describe(values)
    order = (stats.least, stats.low, stats.median, stats.high, stats.most)
    tails = (stats.median, stats.p90, stats.p95, stats.p99, stats.most)

    for row in (order, tails):
        known = [value for value in row if value is not None]
        assert known == sorted(known)
