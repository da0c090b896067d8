"""The median of slopes: what it is by hand, and that stalls do not move it."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_trace.bench.theil import MOST, Slope, slope

SEN = [(1, 9), (2, 15), (3, 19), (4, 20), (10, 45), (12, 55), (18, 78)]
"""The example of Sen's article."""


def test_sens_example():
    """Twenty-one slopes, in order 1, 2.5, 3.67, 3.71 … 4 … 4.38, 5, 5, 6.

    Kendall's score of seven samples has the variance 7 × 6 × 19 / 18, so 13 of the slopes are
    usual: the interval is from the fourth to the fourth from the end.
    """
    assert slope(SEN) == Slope(4.0, pytest.approx(26 / 7), pytest.approx(4.375), 6.0)


def test_a_stall_does_not_move_it():
    """One request in ten that took a hundred times as long."""
    draw = random.Random(4)  # noqa: S311 - the same samples every time
    points = [
        (x, 0.01 + 1e-5 * x * draw.uniform(0.95, 1.05) + (2.0 if n == 3 else 0.0))
        for x in (100.0, 500.0, 1000.0, 4000.0)
        for n in range(10)
    ]
    found = slope(points)

    assert found.slope == pytest.approx(1e-5, rel=0.03)
    assert found.low <= 1e-5 <= found.high
    assert found.high - found.low < 2e-6


def test_samples_of_one_length_have_no_slope():
    """However many."""
    assert slope([(5.0, 1.0), (5.0, 2.0)]) is None
    assert slope([]) is None


def test_many_samples_are_thinned():
    """The time for it is bounded."""
    points = [(float(n % 7), 2.0 * (n % 7)) for n in range(20 * MOST)]

    assert slope(points) == Slope(2, 2, 2, 0)


@given(st.lists(st.tuples(st.floats(1, 1e5), st.floats(1e-4, 100)), max_size=30))
def test_the_interval_is_around_the_slope(points):
    """Whatever the samples."""
    found = slope(points)
    if found is not None:
        assert found.low <= found.slope <= found.high
