"""Thresholds and randomness as OpenTelemetry's specification of tracestate has them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_trace.core import consistent
from llm_trace.core.identity import TraceIdentity


@pytest.mark.parametrize(
    ("share", "written"),
    [
        (1, "ot=th:0"),
        (0.5, "ot=th:8"),
        (0.25, "ot=th:c"),
        (1 / 16, "ot=th:f"),
        (0.1, "ot=th:e6666666666668"),
    ],
)
def test_shares_are_written_as_the_specification_writes_them(share, written):
    """Fourteen digits of the rejected part, without zeros at the end."""
    assert consistent.with_threshold("", consistent.threshold(share)) == written


RANDOM = "rv:0123456789abcd"
STATES = st.sampled_from(
    ["", "a=1", f"ot={RANDOM}", "ot=th:8", f"a=1,ot=th:4;{RANDOM},b=2", "ot=", "ot=x"]
)


@given(STATES, st.integers(0, 2**56 - 1))
def test_what_is_written_is_read(state, threshold):
    """Entries of others and other keys of the same stay; ours is first, and there is one."""
    written = consistent.with_threshold(state, threshold)
    others = [member for member in state.split(",") if member and not member.startswith("ot=")]

    assert consistent.threshold_of(written) == threshold
    assert [m for m in written.split(",") if not m.startswith("ot=")] == others
    assert written.startswith("ot=")
    assert (RANDOM in written) == ("rv" in state)


@pytest.mark.parametrize(
    "state", ["", "a=1", "ot=", "ot=th", "ot=th:", "ot=th:zz", "ot=th:" + "1" * 15]
)
def test_what_is_no_threshold_is_none(state):
    """Nobody wrote one, or it cannot be read."""
    assert consistent.threshold_of(state) is None


@pytest.mark.parametrize(
    ("state", "expected"),
    [("", 0x22222222222222), ("ot=rv:0000000000000f", 15), ("ot=rv:f", 0x22222222222222)],
)
def test_randomness_is_given_or_is_the_ids_last_bits(state, expected):
    """An explicit value wins where it is one."""
    identity = TraceIdentity(0x1111_1111_1111_1111_11_22222222222222, 1, trace_state=state)

    assert consistent.randomness(identity) == expected
