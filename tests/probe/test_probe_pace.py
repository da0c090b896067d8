"""Tokens that are held together on their way, told from a server that is quick."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_trace.probe.pace import Pace, pace_of

MS = 1_000_000


def lumps(number, of, every, inside=0.05):
    """Build the stamps of so many lumps of tokens; ms between lumps and inside of them."""
    return [
        round((lump * every + place * inside) * MS) for lump in range(number) for place in range(of)
    ]


@pytest.mark.parametrize(
    ("arrived", "waited", "server", "stream"),
    [
        (lumps(20, 1, 20), 100, 380, "streamed"),
        (lumps(20, 1, 20), 100, None, "streamed"),
        (lumps(10, 2, 40), 100, 380, "streamed"),  # two steps that shared a packet
        (lumps(3, 20, 400), 100, 1_180, "lumped"),
        (lumps(3, 20, 400), 100, None, "lumped"),
        (lumps(1, 40, 0), 900, 780, "lumped"),
        (lumps(1, 40, 0), 900, None, "suspect"),
        (lumps(1, 40, 0), 10, None, "unknown"),  # a mock, or a cache
        (lumps(1, 40, 0), 900, 3, "unknown"),  # the server itself made it at once
        (lumps(1, 3, 0), 900, 300, "unknown"),
        ([], 0, None, "unknown"),
    ],
)
def test_lumps_are_told_from_a_pace(arrived, waited, server, stream):
    """The server's own pace decides where it is told; else the arrivals, and then with doubt."""
    known = None if server is None else server * MS

    assert stream == pace_of(arrived, waited * MS, known).stream


def test_what_is_said_of_a_stream():
    """Events, lumps and the time from the first to the last."""
    pace = pace_of(lumps(3, 20, 400), 100 * MS, None)

    assert Pace(60, 3, round(800.95 * MS), "lumped") == pace
    assert 20 == pace.per_lump


@given(
    st.lists(st.integers(0, 10**12), max_size=60).map(sorted),
    st.integers(0, 10**12),
    st.none() | st.integers(0, 10**12),
)
def test_any_arrivals_have_a_pace(arrived, waited, server):
    """No stamps make it raise, and there are never more lumps than tokens."""
    pace = pace_of(arrived, waited, server)

    assert pace.lumps <= pace.tokens == len(arrived)
