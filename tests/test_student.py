"""Student's t against printed tables."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_trace.student import quantile, two_sided


@pytest.mark.parametrize(
    ("confidence", "freedom", "printed"),
    [
        (0.95, 1, 12.706),
        (0.95, 2, 4.303),
        (0.95, 5, 2.571),
        (0.95, 10, 2.228),
        (0.95, 30, 2.042),
        (0.95, 120, 1.980),
        (0.95, 1e6, 1.960),
        (0.99, 1, 63.657),
        (0.99, 9, 3.250),
        (0.90, 20, 1.725),
    ],
)
def test_quantiles_are_those_of_the_tables(confidence, freedom, printed):
    """NIST/SEMATECH e-Handbook of Statistical Methods, table 1.3.6.7.2, to its three decimals."""
    assert quantile(confidence, freedom) == pytest.approx(printed, abs=6e-4)


@pytest.mark.parametrize(("t", "freedom", "closed"), [(1.0, 1, 0.5), (0.0, 7, 1.0)])
def test_probabilities_of_known_form(t, freedom, closed):
    """One degree of freedom is Cauchy's distribution; at 0 everything is at least as far."""
    assert two_sided(t, freedom) == pytest.approx(closed)


def test_two_degrees_have_a_closed_form():
    """The probability is 1 - t / sqrt(t² + 2)."""
    for t in (0.1, 1.0, 3.0, 20.0):
        assert two_sided(t, 2) == pytest.approx(1 - t / math.sqrt(t * t + 2), rel=1e-9)


def test_a_difference_without_spread_is_sure():
    """Infinitely many standard errors from 0."""
    assert two_sided(math.inf, 5) == 0


@given(st.floats(0.5, 0.999), st.floats(1, 1e4))
def test_a_quantile_is_the_inverse(confidence, freedom):
    """What lies outside of it has the rest of the probability."""
    assert two_sided(quantile(confidence, freedom), freedom) == pytest.approx(1 - confidence)


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0.5, 1e5))
def test_further_is_less_likely(one, other, freedom):
    """And a probability is one."""
    near, far = sorted((one, other))

    assert 0 <= two_sided(far, freedom) <= two_sided(near, freedom) + 1e-12 <= 1 + 1e-12
