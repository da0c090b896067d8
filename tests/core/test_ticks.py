"""What the ticks of a call come to: the time between its tokens, what stalled, and why."""

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_trace.core.ticks import BOUNDS_NS, STALLED, Rhythm, Ticks, rhythm_of

MS = 1_000_000


def nobody_knows(_index):
    """No gap has a cause."""


def rhythm(*gaps, several=None, cause=nobody_knows):
    """What gaps of so many ms come to."""
    return rhythm_of(Ticks([round(gap * MS) for gap in gaps], several or {}, cause))


def buckets(made):
    """The upper bounds, in ms, of the buckets that are not empty, and their counts."""
    bounds = [bound / MS for bound in BOUNDS_NS]
    return {
        bounds[cell] if cell < len(bounds) else None: number
        for cell, number in enumerate(made.gaps.counts)
        if number
    }


def test_one_token_has_no_rhythm():
    """Without a second tick there is nothing to tell."""
    assert rhythm() is None


def test_even_ticks_lose_nothing():
    """Every gap is the median: no stall, and nothing to explain."""
    made = rhythm(10, 10, 10)

    assert (made.longest, made.stall, made.cause) == (10 * MS, 0, None)
    assert (buckets(made), made.gaps.total, made.gaps.longest) == ({10: 3}, 30 * MS, 10 * MS)


def test_a_stall_is_what_lies_beyond_the_median():
    """So TTFT + (n - 1) median gaps + stall is the whole, whatever the gaps were."""
    made = rhythm(10, 10, 50, 10, 14, cause=lambda index: "prefill" if index == 2 else None)

    assert made.stall == 94 * MS - 5 * 10 * MS
    assert (made.longest, made.cause) == (50 * MS, "prefill")


def test_the_cause_is_that_of_most_of_the_lost_time():
    """Two stalls of different causes: the one that took more names it."""
    causes = {1: "preempted", 3: "prefill", 4: "prefill"}
    made = rhythm(10, 100, 10, 70, 70, 10, 10, 10, cause=causes.get)

    assert made.cause == "prefill"  # 50 + 50 over two medians, against 80


def test_a_gap_of_twice_the_median_is_no_stall():
    """Some steps are longer than others: nobody need ask why."""
    assert rhythm(10, 10, 10 * STALLED, cause=lambda _: "prefill").cause is None


def test_tokens_of_one_step_share_its_time():
    """Speculative decoding: three tokens in 30 ms are three of 10 ms, not one of 30."""
    made = rhythm(30, 10, several={0: 3})

    assert buckets(made) == {10: 4}
    assert (made.gaps.total, made.longest, made.stall) == (40 * MS, 30 * MS, 0)


def test_many_tokens_in_a_long_step_are_no_stall():
    """A long step that brought as much more is as fast as the others."""
    made = rhythm(10, 40, 10, several={1: 4}, cause=lambda _: "prefill")

    assert (made.stall, made.cause) == (0, None)


@given(st.lists(st.tuples(st.integers(0, 10**11), st.integers(1, 5)), min_size=1, max_size=60))
def test_nothing_is_lost_or_invented(observed):
    """A sample for each token, the sum of all gaps, each in the bucket that Prometheus means."""
    several = {index: tokens for index, (_, tokens) in enumerate(observed) if tokens != 1}
    made = rhythm_of(Ticks([gap for gap, _ in observed], several, nobody_knows))
    shares = [gap // tokens for gap, tokens in observed for _ in range(tokens)]
    expected = [0] * (len(BOUNDS_NS) + 1)
    for share in shares:
        expected[bisect_left(BOUNDS_NS, share)] += 1

    assert isinstance(made, Rhythm)
    assert list(made.gaps.counts) == expected
    assert made.gaps.total == sum(gap for gap, _ in observed)
    assert made.longest == max(gap for gap, _ in observed)
    assert 0 <= made.stall <= made.gaps.total


@pytest.mark.parametrize(("gap", "bound"), [(1.0, 1), (1.000001, 2.5), (80_000, 80_000)])
def test_bounds_are_inclusive(gap, bound):
    """As `le` says."""
    assert buckets(rhythm(gap)) == {bound: 1}
