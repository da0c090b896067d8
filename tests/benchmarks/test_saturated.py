"""What is made of the turns of two servers; the servers themselves are for `saturated` to start."""

from __future__ import annotations

import pytest

from tests.benchmarks.saturated import Pair, Turn, misses, ratio


def test_the_ratio_is_of_pairs_and_has_an_error():
    """A machine that slows down between pairs changes neither."""
    pairs = [Pair(Turn(10, 1), Turn(9, 1)), Pair(Turn(4, 1), Turn(4, 1))]

    assert ratio(pairs) == pytest.approx((0.95, 0.05))


@pytest.mark.parametrize(
    ("kept", "error", "missed"),
    [(0.99, 0, False), (1.02, 0.01, False), (0.97, 0.011, False), (0.97, 0.009, True)],
)
def test_the_must_is_missed_where_chance_does_not_explain_it(kept, error, missed):
    """Two standard errors are chance."""
    assert misses(kept, error) is missed
