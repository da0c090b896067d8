"""What an engine behind a wire said, placed on our line: exact, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_trace import semconv as s
from llm_trace.core import ledger as m
from llm_trace.core.inside import Inside, place
from llm_trace.core.ledger import Claim
from llm_trace.core.record import sum_by_phase

WHOLE = Inside({s.ADMISSION: 5, s.PREPARE: 5, s.QUEUE_WAIT: 40, s.PREFILL: 20, s.FIRST_TOKEN: 10})


def tiled(inside, *, streamed=True, start=110, end=210, until=230):
    """Phases of a request of 300 ns whose call was handed off after 100 and answered after 210."""
    given_ = {m.RECEIVED: 1, m.ADMITTED: 1, m.HANDED_OFF: 100, m.FINISHED: 300}
    if streamed:
        given_ |= {m.FIRST_TOKEN_ENGINE: end, m.FIRST_TOKEN_SENT: 220, m.LAST_TOKEN_SENT: 250}
    else:
        given_ |= {m.RETURNED: until}
    claims = place(inside, start, end, until)
    ledger = m.tile(given_, claims, streamed=streamed, ended_early=False)
    return sum_by_phase(ledger.segments)


def test_a_whole_account_leaves_the_network_as_the_rest():
    """The engine's 80 ns end at the first token, the 20 ns that it knows nothing of come first."""
    assert place(WHOLE, 110, 210, 210) == [
        Claim(s.NETWORK, 110, 130),
        Claim(s.FIRST_TOKEN, 200, 210),
        Claim(s.PREFILL, 180, 200),
        Claim(s.QUEUE_WAIT, 140, 180),
    ]
    assert tiled(WHOLE) == {
        s.PREPARE: 99,
        s.ENGINE: 20,
        s.NETWORK: 20,
        s.QUEUE_WAIT: 40,
        s.PREFILL: 20,
        s.FIRST_TOKEN: 20,
        s.DECODE: 30,
        s.FINISH: 50,
    }


def test_an_account_of_some_phases_leaves_the_rest_to_the_engine():
    """Queue and prefill alone say nothing of a network."""
    assert tiled(Inside({s.QUEUE_WAIT: 40, s.PREFILL: 20}, whole=False)) == {
        s.PREPARE: 99,
        s.ENGINE: 50,
        s.QUEUE_WAIT: 40,
        s.PREFILL: 20,
        s.FIRST_TOKEN: 10,
        s.DECODE: 30,
        s.FINISH: 50,
    }


def test_an_answer_in_one_piece_is_split_up_to_its_head():
    """Its decode is the engine's, and the way of the rest of its body is network."""
    inside = Inside({s.QUEUE_WAIT: 40, s.PREFILL: 10, s.DECODE: 30})

    assert tiled(inside, streamed=False) == {
        s.PREPARE: 99,
        s.ENGINE: 10,
        s.NETWORK: 40,
        s.QUEUE_WAIT: 40,
        s.PREFILL: 10,
        s.DECODE: 30,
        s.FINISH: 70,
    }


def test_the_networks_of_a_chain_of_servers_add_up():
    """What a gateway calls network is network for its caller, too."""
    assert tiled(Inside({s.NETWORK: 30, s.PREFILL: 50}))[s.NETWORK] == 50


@pytest.mark.parametrize(
    ("inside", "line"),
    [
        (Inside({s.PREFILL: 101}), (110, 210)),
        (Inside({s.PREFILL: 101}, whole=False), (110, 210)),
        (Inside({s.PREFILL: 1}), (210, 110)),
        (Inside({s.PREFILL: 1}), (0, 210)),
    ],
)
def test_an_account_that_contradicts_our_clock_is_not_believed(inside, line):
    """More time than there was, or a line that is none: nothing of it is laid."""
    assert not inside.fits(*line)
    assert place(inside, *line, 230) == []


phases = st.dictionaries(st.sampled_from(s.PHASES), st.integers(0, 60))


@given(phases, st.booleans(), st.booleans())
def test_whatever_an_engine_says_the_request_is_tiled(said, whole, streamed):
    """The sum stays exact, and no phase outside of the call changes."""
    bare = tiled(Inside({}, whole=False), streamed=streamed)
    split = tiled(Inside(said, whole=whole), streamed=streamed)

    assert sum(split.values()) == sum(bare.values()) == 299
    assert split[s.PREPARE] == bare[s.PREPARE]
