"""What observers read off a record."""

from dataclasses import FrozenInstanceError, replace

import pytest

from llm_trace import semconv as s
from llm_trace.core import ledger as m
from llm_trace.core.ledger import Segment
from llm_trace.core.record import CallRecord, HttpFacts, RequestRecord, sum_by_phase
from llm_trace.core.usage import Usage

RECORD = RequestRecord(
    identity=None,
    received=100,
    finished=405,
    wall_offset=0,
    segments=(Segment(s.UNATTRIBUTED, 100, 210), Segment(s.DECODE, 210, 400)),
    moments={
        m.RECEIVED: 100,
        m.FIRST_TOKEN_SENT: 210,
        m.LAST_TOKEN_SENT: 400,
        m.FINISHED: 405,
    },
    moments_dropped=0,
    outcome="ok",
    error_type=None,
    start_state="unknown",
    operation="chat",
    provider="",
    model="m",
    streamed=True,
    http=HttpFacts(),
    usage=Usage(output_tokens=11),
    request={},
    response={},
    attributes={},
)
CALL = CallRecord(
    *("chat", "m", "app", 1, 0),
    handed_off=110,
    queued=0,
    scheduled=0,
    first_token=150,
    last_token=180,
    returned=190,
    usage=Usage(output_tokens=4),
    preemptions=0,
    requeued=0,
    cold=False,
    attributes={},
)


def test_durations_are_read_off_the_stamps():
    """The whole, the wait for the first token and the last phase follow from the ledger."""
    expected = (305, 110, s.DECODE)
    assert expected == (RECORD.duration, RECORD.ttft, RECORD.last_phase)


def test_without_a_first_token_there_is_no_ttft():
    """A missing time to first token is absent, never zero; an empty ledger died on arrival."""
    record = replace(RECORD, moments={m.RECEIVED: 100, m.FINISHED: 100}, segments=())

    expected = (None, s.ADMISSION)
    assert expected == (record.ttft, record.last_phase)


def test_a_record_cannot_be_changed():
    """Observers share one record; none can spoil it for another."""
    with pytest.raises(FrozenInstanceError):
        RECORD.outcome = "error"


def without(moment):
    """The moments but for one."""
    return {k: at for k, at in RECORD.moments.items() if k != moment}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, 19.0),
        ({"calls": (CALL,), "visible": CALL}, 19.0),
        ({"usage": Usage(output_tokens=2)}, 190.0),
        ({"usage": Usage(output_tokens=1)}, None),
        ({"usage": Usage(output_tokens=0)}, None),
        ({"usage": Usage()}, None),
        ({"moments": without(m.FIRST_TOKEN_SENT)}, None),
        ({"moments": without(m.LAST_TOKEN_SENT)}, None),
        ({"calls": (CALL, CALL), "visible": CALL}, 19.0),
        ({"parallel_calls": 2, "visible": CALL}, 10.0),
        ({"parallel_calls": 2, "visible": None}, None),
        ({"streamed": False, "calls": (CALL,), "visible": CALL}, 10.0),
        ({"streamed": False}, None),
    ],
)
def test_time_per_output_token_needs_two_tokens_and_two_stamps(facts, expected):
    """The client's stamps for one call's stream, else the visible call's own; absent, never 0."""
    assert expected == replace(RECORD, **facts).time_per_output_token


@pytest.mark.parametrize(
    "stamps",
    [
        {"first_token": 0},
        {"first_token": 0, "last_token": 0},
        {"first_token": 180, "last_token": 150},
        {"last_token": 1_700_000_000_000_000_000},
        {"first_token": 50},
    ],
)
def test_stamps_of_another_clock_give_no_time_per_output_token(stamps):
    """An engine's stamps outside the request are never subtracted from those inside it."""
    call = CALL._replace(**stamps)

    record = replace(RECORD, streamed=False, calls=(call,), visible=call)

    assert record.time_per_output_token is None


def test_phases_are_summed_over_their_segments():
    """A phase may come in several pieces; a cut leaves out what lies behind it."""
    segments = [
        Segment(s.PREPARE, 10, 12),
        Segment(s.RETRIEVAL, 12, 20),
        Segment(s.PREPARE, 20, 25),
        Segment(s.DECODE, 25, 99),
    ]

    whole, cut = sum_by_phase(segments), sum_by_phase(segments, 22)

    expected = (
        {s.PREPARE: 7, s.RETRIEVAL: 8, s.DECODE: 74},
        {s.PREPARE: 4, s.RETRIEVAL: 8},
    )
    assert expected == (whole, cut)
