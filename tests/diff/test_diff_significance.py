"""Noise is what blocks differ by: the tests err as seldom as they say, also when requests queue."""

import math
import random
from statistics import fmean, variance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_trace.diff.significance import Change, Mean, change, holm, mean, quantile, shape

BLOCKS = 12


def test_a_mean_is_the_ratio_of_the_sums():
    """Blocks with more requests count for more; empty ones for nothing."""
    one = mean([10.0, 0.0, 30.0], [10, 0, 10])

    assert (one.value, one.blocks) == (2.0, 2)
    assert one.variance == pytest.approx(1.0)  # the jackknife's: ((3 - 2)² + (1 - 2)²) / 2


def test_equal_blocks_give_the_usual_standard_error():
    """The jackknife of a plain mean is the variance over n, where neighbours are not alike."""
    values = [1.0, 7.0, 2.0, 4.0]
    spread = sum((x - 3.5) ** 2 for x in values) / 3

    one = mean(values, [1] * 4)
    assert (one.variance, one.freedom) == (pytest.approx(spread / 4), 3)


def test_neighbours_that_are_alike_are_worth_less():
    """The same values in order: a larger variance with fewer degrees of freedom."""
    one, other = (mean(values, [1] * 6) for values in ([1, 9, 2, 8, 3, 7], [1, 2, 3, 7, 8, 9]))

    assert other.value == one.value
    assert other.variance > 2 * one.variance
    assert other.freedom < one.freedom / 2


def test_without_requests_there_is_no_mean():
    """It is not 0."""
    assert mean([0.0, 0.0], [0, 0]) is None


def test_welch_by_hand():
    """Means 10 and 14, variances of the mean 1 and 3, 9 and 19 degrees of freedom.

    t = 4 / 2 = 2 at 16 / (1 / 9 + 9 / 19) = 27.36 degrees: a two-sided 0.0555; the 97.5th
    percentile of such a t is 2.0505.
    """
    one = change(Mean(10, 1.0, 10, 9), Mean(14, 3.0, 20, 19))

    assert one.value == 4
    assert one.p == pytest.approx(0.0555, abs=2e-4)
    assert one.high - one.value == pytest.approx(2 * 2.0505, abs=2e-3)
    assert one.value - one.low == pytest.approx(one.high - one.value)


def test_few_blocks_say_nothing_of_noise():
    """The difference is there, its probability is not."""
    few = mean([1.0, 2.0, 3.0, 0.0], [1, 1, 1, 0])

    assert change(few, few) == Change(0.0)


@pytest.mark.parametrize(("less", "p"), [(1e-7, 1.0), (0.5, 0.0)])
def test_sides_without_noise(less, p):
    """A phase that always takes the same: under a microsecond is rounding, above it is sure."""
    a, b = mean([1.0] * 5, [1] * 5), mean([1.0 - less] * 5, [1] * 5)

    assert change(a, b).p == p


def queue(draw, requests=600, load=0.85):
    """Waits in one queue, in order: each depends on the one before (Lindley's recursion)."""
    wait, waits = 0.0, []
    for _ in range(requests):
        waits.append(wait)
        wait = max(0.0, wait + draw.expovariate(1 / load) - draw.expovariate(1))
    return waits


def in_blocks(waits):
    """Sums and numbers by block."""
    size = len(waits) // BLOCKS
    blocks = [waits[n * size : (n + 1) * size] for n in range(BLOCKS)]
    return [sum(block) for block in blocks], [len(block) for block in blocks]


def test_two_hours_of_one_queue_rarely_differ():
    """The waits hang together, and still at most one pair in twenty is called a change.

    The same waits taken one by one would be called one nearly always.
    """
    draw = random.Random(5)  # noqa: S311 - the same queues every time
    wrong = naive = 0
    for _ in range(200):
        a, b = queue(draw), queue(draw)
        wrong += change(mean(*in_blocks(a)), mean(*in_blocks(b))).p < 0.05
        single = (Mean(fmean(x), variance(x) / len(x), len(x), len(x) - 1) for x in (a, b))
        naive += change(*single).p < 0.05

    assert wrong / 200 <= 0.05
    assert naive / 200 > 0.75


def test_a_change_that_matters_is_found():
    """A queue at another load."""
    draw = random.Random(6)  # noqa: S311 - the same queues every time
    found = 0
    for _ in range(50):
        a, b = queue(draw, 2400, load=0.5), queue(draw, 2400, load=0.8)
        found += change(mean(*in_blocks(a)), mean(*in_blocks(b))).p < 0.05

    assert found / 50 > 0.9


def test_holms_correction():
    """The smallest counts as often as there are phases, and none falls below one before it."""
    given = {"a": 0.01, "b": 0.04, "c": 0.03, "d": None, "e": 0.9}

    assert holm(given) == {
        "a": pytest.approx(0.04),
        "b": pytest.approx(0.09),
        "c": pytest.approx(0.09),
        "d": None,
        "e": pytest.approx(0.9),
    }


# --- shapes -----------------------------------------------------------------------------------


def buckets(blocks, bounds=(1.0, 2.0, 4.0, math.inf)):
    """Cumulative counts of the values of each block."""
    return {bound: [sum(v <= bound for v in block) for block in blocks] for bound in bounds}


def test_another_shape_with_the_same_mean_is_found():
    """Half fast and half slow is not the same as all in between."""
    a = buckets([[1.5] * 10] * 12)
    b = buckets([[0.5] * 5 + [2.5] * 5] * 12)

    assert shape(a, b) == pytest.approx(2 / 924)  # only these two ways to deal are as far apart


def test_the_same_shape_is_noise():
    """Blocks of one side differ as much from each other."""
    draw = random.Random(2)  # noqa: S311 - the same blocks every time
    wrong = 0
    for _ in range(60):
        sides = [[[draw.expovariate(0.5) for _ in range(20)] for _ in range(12)] for _ in range(2)]
        wrong += shape(*map(buckets, sides)) < 0.05

    assert wrong / 60 < 0.12


@pytest.mark.parametrize(
    ("a", "b"),
    [({}, {}), ({1.0: [1.0] * 3}, {1.0: [1.0] * 3}), ({1.0: [1.0] * 9}, {2.0: [1.0] * 9})],
)
def test_no_buckets_few_blocks_or_other_bounds_are_not_compared(a, b):
    """Nothing is said of them."""
    assert shape(a, b) is None


@pytest.mark.parametrize(
    ("share", "value"), [(0.5, 1.0), (0.25, 0.5), (0.75, 3.0), (0.99, 4.0), (0.0, 0.0)]
)
def test_quantiles_are_straight_lines_inside_a_bucket(share, value):
    """And above the last bound only the bound is known."""
    one = {1.0: [2.0, 0.0], 2.0: [2.0, 0.5], 4.0: [2.0, 1.5], math.inf: [2.0, 2.0]}

    assert quantile(share, one) == pytest.approx(value)


def test_without_samples_there_is_no_quantile():
    """It is not 0."""
    assert quantile(0.5, {1.0: [0.0], math.inf: [0.0]}) is None
    assert quantile(0.5, {}) is None


NUMBERS = st.lists(st.floats(0, 1e6), min_size=5, max_size=5)


@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS)
def test_any_blocks_give_a_change_or_say_that_they_do_not(seconds_a, n_a, seconds_b, n_b):
    """The interval is around the value, the probability is one."""
    a, b = mean(seconds_a, n_a), mean(seconds_b, n_b)
    if a is None or b is None:
        return
    one = change(a, b)
    if one.p is not None:
        assert one.low <= one.value <= one.high
        assert 0 <= one.p <= 1
