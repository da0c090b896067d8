"""Gaps between chunks: counted as they pass, exactly as observing each would."""

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from llm_trace.asgi.gaps import BOUNDS_NS, GapCounter
from llm_trace.semconv import TOKEN_BUCKETS

MS = 1_000_000


def test_no_gap_is_nothing():
    """One chunk has no gap, so there is nothing to record."""
    assert GapCounter().freeze(0) is None


def test_a_gap_on_a_bound_belongs_to_it():
    """Bounds are inclusive, as in Prometheus; what is over the last has a place of its own."""
    counter = GapCounter()

    for gap in (0, MS, MS + 1, 80_000 * MS, 80_000 * MS + 1):
        counter.add(gap)

    frozen = counter.freeze(7)
    counts = [0] * (len(TOKEN_BUCKETS) + 1)
    counts[0], counts[1], counts[-2], counts[-1] = 2, 1, 1, 1
    assert (counts, 7, 80_000 * MS + 1) == (list(frozen.counts), frozen.total, frozen.longest)


@given(st.integers(0, 200 * 10**9))
def test_the_place_of_a_gap_tells_where_the_next_may_go(gap):
    """A gap lies above the one edge and up to the other, and both lead to the same bucket."""
    counter = GapCounter()

    above, up_to, cell = counter.place(gap)

    assert above < gap <= up_to
    assert counter.counts[cell] == 1
    assert {cell} == {bisect_left(BOUNDS_NS, at) for at in (above + 1, gap, up_to)}


def test_what_is_frozen_stays():
    """Chunks that come after the end change no record."""
    counter = GapCounter()
    counter.add(MS)

    frozen = counter.freeze(MS)
    counter.add(MS)

    assert sum(frozen.counts) == 1


@given(st.lists(st.integers(0, 200 * 10**9)))
def test_counts_are_those_of_each_gap(gaps):
    """Whatever the gaps, each is in the bucket that its length says."""
    counter = GapCounter()

    for gap in gaps:
        counter.add(gap)

    expected = [0] * (len(BOUNDS_NS) + 1)
    for gap in gaps:
        expected[bisect_left(BOUNDS_NS, gap)] += 1
    assert expected == counter.counts
    assert max(gaps, default=0) == counter.longest
