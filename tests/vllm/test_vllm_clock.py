"""The engine core's stamps: seconds of our clock, of another one, or no stamps at all."""

import math

import pytest

from llm_trace_vllm.clock import TOLERANCE_NS, EngineClock, to_ns

NOW = 5_000 * 10**9
FLOAT_NS = 1_000
"""What a float of seconds since the epoch cannot tell apart."""


@pytest.mark.parametrize(
    "nonsense", [None, 0, 0.0, -1.5, math.nan, math.inf, -math.inf, "12", [], object()]
)
def test_nonsense_is_no_stamp(nonsense):
    """What cannot be a stamp is missing, never an exception."""
    assert to_ns(nonsense) == 0
    assert EngineClock().place(nonsense) == 0


def test_stamps_of_this_host_are_kept():
    """Seconds become the nanoseconds that they are."""
    clock = EngineClock()

    assert clock.observe(4_999.5, NOW) == 4_999_500_000_000
    assert clock.place(4_999.25) == 4_999_250_000_000
    assert clock.foreign is False


def test_a_step_without_a_stamp_ended_when_it_was_heard_of():
    """No stamp is not another clock."""
    clock = EngineClock()

    assert clock.observe(0.0, NOW) == NOW
    assert clock.foreign is False


def test_a_step_a_little_ahead_is_still_ours():
    """Reading two clocks takes time: a millisecond proves nothing."""
    clock = EngineClock()

    assert clock.observe((NOW + TOLERANCE_NS) / 1e9, NOW) == NOW + TOLERANCE_NS
    assert clock.foreign is False


def test_epoch_stamps_are_moved():
    """Wall-clock seconds cannot be monotonic ones: the step's end falls on when we heard of it."""
    clock = EngineClock()
    epoch = 1_700_000_000.0

    assert clock.observe(epoch, NOW) == NOW
    assert clock.foreign is True
    assert clock.place(epoch - 0.25) == pytest.approx(NOW - 250_000_000, abs=FLOAT_NS)


def test_a_foreign_clock_is_moved_again_at_each_step():
    """Two clocks drift, so the last step tells best."""
    clock = EngineClock()
    clock.observe(1_700_000_000.0, NOW)

    assert clock.observe(1_700_000_001.5, NOW + 10**9) == NOW + 10**9
    assert clock.place(1_700_000_001.5) == NOW + 10**9
    assert clock.place(1_700_000_001.0) == pytest.approx(NOW + 500_000_000, abs=FLOAT_NS)


def test_a_request_queued_before_it_was_handed_off_contradicts():
    """A clock that is behind ours shows only there; once is enough."""
    clock = EngineClock()

    assert clock.contradicts(3.0, NOW) is True
    assert clock.contradicts((NOW - TOLERANCE_NS) / 1e9, NOW) is False
    assert clock.contradicts(None, NOW) is False
    clock.move(3 * 10**9, NOW)
    assert clock.contradicts(3.0, NOW) is False
