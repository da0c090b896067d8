"""The proxy's stamp of a request: in every spelling, and only where it can be true."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_trace.asgi.edge import edge_of, stamp_of
from llm_trace.core import faults
from llm_trace.testing import (
    WALL,
    FakeClock,
    Recorder,
    drive,
    http_scope,
    response_body,
    response_start,
    scripted,
)

MS = 1_000_000
SENT = 1_700_000_000_123 * MS


@pytest.mark.parametrize(
    "value",
    [
        b"t=1700000000.123",
        b"1700000000.123",
        b"t=1700000000123",
        b"1700000000123",
        b"t=1700000000123000",
        b" t=1700000000.123000000 ",
        b"1700000000123000000",
        b"t=1700000000123, t=1700000000999",
        b"t=1700000000123;proxy=1",
    ],
)
def test_every_spelling_is_the_same_moment(value):
    """Seconds, ms, us and ns are told apart by their size; the first of several stamps counts."""
    assert SENT == stamp_of(value)


@pytest.mark.parametrize(
    "value", [b"", b"t=", b"now", b"-1700000000", b"0", b"12345", b"t=1e9", b"NaN", b"9" * 40]
)
def test_what_is_no_date_is_no_stamp(value):
    """Nonsense is no moment, whoever sends it."""
    assert stamp_of(value) is None


@given(st.binary(max_size=40))
def test_no_header_can_make_it_raise(value):
    """The header comes from outside: any bytes are a date or none."""
    stamp = stamp_of(value)

    assert stamp is None or stamp > 0


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"t=1700000001", "edge_negative"),
        (b"t=1699999000", "edge_over_limit"),
        (b"soon", "edge_unreadable"),
    ],
)
def test_what_cannot_be_true_is_dropped_and_counted(value, reason):
    """A clock that is wrong, a replayed header and nonsense give no edge, and are counted."""
    before = faults.dropped[reason]

    assert edge_of([(b"x-request-start", value)], SENT, 60_000 * MS) is None
    assert before + 1 == faults.dropped[reason]


def recorded(value, **settings):
    """What is recorded of a request with this stamp."""
    clock, recorder = FakeClock(), Recorder()
    scope = http_scope(headers=[(b"host", b"a"), (b"x-request-start", value)])
    app = scripted(clock, 5, response_start(), response_body(b"{}"))
    asyncio.run(drive(app, recorder, clock=clock, scope=scope, settings=settings))
    return recorder.record


def test_the_edge_is_reported_apart():
    """The way to us is on the record and in no phase."""
    record = recorded(b"t=%d" % ((WALL - 40 * MS) // MS))

    assert 40 * MS == record.edge
    assert {"admission": 0, "unattributed": 5} == {"admission": 0, **record.phases}


def test_without_trust_nobody_is_believed():
    """With the limit 0 the header is not read."""
    assert recorded(b"t=%d" % (WALL // MS - 40), max_edge_seconds=0).edge is None
