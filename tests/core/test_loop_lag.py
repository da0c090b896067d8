"""What is kept of a loop's blocks answers as if all were kept."""

from hypothesis import given
from hypothesis import strategies as st

from llm_trace.core.loop_lag import LEAST, LoopLag

MS = 1_000_000
START = 10_000 * MS
INTERVAL = 50 * MS


def told(lates):
    """Build the lag of a loop whose timers ran late by these ms, and the stamps of all of it."""
    lag, now, blocks = LoopLag(), START, []
    for late in lates:
        lag.due = now + INTERVAL
        now = lag.due + late * MS
        assert late * MS == lag.ran(now)
        if late * MS >= LEAST:
            blocks.append((lag.due, now))
    lag.due = now + INTERVAL
    return lag, now, blocks


@given(st.lists(st.integers(0, 400), max_size=40), st.integers(0, 3_000), st.integers(0, 200))
def test_the_longest_block_of_a_wait_is_found(lates, waited, after):
    """For every wait up to now, what is kept gives the longest block in it."""
    lag, now, blocks = told(lates)
    now += after * MS
    since = now - waited * MS
    if now - lag.due >= LEAST:
        blocks.append((lag.due, now))

    expected = max((ran - max(due, since) for due, ran in blocks), default=0)

    assert max(0, expected) == lag.longest(since, now)


def test_a_block_counts_from_where_the_wait_began():
    """A request that came in the middle of a block waited for the rest of it."""
    lag, now, _ = told([300])

    assert [100 * MS, 300 * MS] == [lag.longest(now - ago * MS, now) for ago in (100, 1_000)]


def test_a_block_that_goes_on_counts():
    """Whoever ends a long callback knows of it before the timer does."""
    lag, now, _ = told([0])

    assert 250 * MS == lag.longest(now, lag.due + 250 * MS)
    assert lag.longest(now, lag.due + LEAST - 1) == 0


def test_a_loop_without_a_timer_yet_has_no_block():
    """Before the first timer is set nothing can be late."""
    assert LoopLag().longest(0, START) == 0


def test_what_is_kept_is_bounded():
    """Ever shorter blocks are the worst case: the oldest go."""
    lag, _, _ = told(range(399, 3, -1))

    assert 64 == len(lag._blocks)
