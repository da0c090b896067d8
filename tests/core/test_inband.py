"""The in-band ledger on the wire: what is told is read again, and nonsense is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_trace import semconv as s
from llm_trace.core import inband
from llm_trace.core.inband import END, FIRST_TOKEN, MARK, Told

PHASES = {s.PREPARE: 2_000, s.QUEUE_WAIT: 10_999, s.PREFILL: 1}


def test_a_comment_is_one_line():
    """Whole microseconds, rounded down, in a line of its own."""
    line = (
        b': llm_trace {"v":1,"at":"first_token","us":{"prepare":2,"queue_wait":10,"prefill":0}}\n'
    )

    assert inband.comment(FIRST_TOKEN, PHASES) == line


def test_a_header_is_in_milliseconds():
    """As browsers read it."""
    value = (
        "llm_trace_prepare;dur=0.002, llm_trace_queue_wait;dur=0.010, llm_trace_prefill;dur=0.000"
    )

    assert inband.server_timing(PHASES) == value


@given(
    st.sampled_from([FIRST_TOKEN, END]),
    st.dictionaries(st.sampled_from(s.PHASES), st.integers(0, 10**15), min_size=1),
)
def test_what_is_told_is_read(at, phases):
    """By line and by header, to the microsecond."""
    whole = {phase: ns // 1000 * 1000 for phase, ns in phases.items()}

    assert inband.read_comment(inband.comment(at, phases)) == Told(at, whole)
    if max(phases.values()) < 10**15:
        assert inband.read_server_timing(inband.server_timing(phases)) == Told(END, whole)


def test_every_ledger_of_a_stream_is_read():
    """Between its events, in their order; a line that only looks like one is a comment."""
    lines = [b"data: {}\n\n", MARK + b"no\n", b": ping\n\n"]
    told = [Told(FIRST_TOKEN, {s.PREFILL: 1_000}), Told(END, {s.PREFILL: 1_000, s.DECODE: 2_000})]
    body = b"".join(line + inband.comment(*one) for one in told for line in lines)

    assert list(inband.read_stream(body)) == [one for one in told for _ in lines]
    assert list(inband.read_stream(b"".join(lines))) == []


def test_names_outside_of_the_vocabulary_are_other_on_both_ways():
    """An app's own phase stays at home, and a name that a newer version knows is not lost."""
    assert b"secret" not in inband.comment(END, {"secret": 5_000})
    newer = MARK + b'{"v":1,"at":"end","us":{"warp":5,"drive":6,"prefill":1}}'
    assert inband.read_comment(newer) == Told(END, {s.OTHER: 11_000, s.PREFILL: 1_000})


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"null",
        b"{}",
        b"[]",
        b'{"v":1,"at":"end","us":{}}',
        b'{"v":1,"at":"end","us":[1]}',
        b'{"v":1,"at":"later","us":{"prefill":1}}',
        b'{"v":1,"at":["end"],"us":{"prefill":1}}',
        b'{"v":"1","at":"end","us":{"prefill":1}}',
        b'{"v":1,"at":"end","us":{"prefill":true}}',
        b'{"v":1,"at":"end","us":{"prefill":1.5}}',
        b'{"v":1,"at":"end","us":{"prefill":-1}}',
        b'{"v":1,"at":"end","us":{"prefill":' + b"9" * 30 + b"}}",
        b'{"v":1,"at":"end","us":{"prefill":NaN}}',
        b'{"v":1,"at":"end","us":{"prefill":1}}' + b" " * 4096,
        b"\xff",
    ],
)
def test_nonsense_is_no_ledger(document):
    """Whatever comes over the wire, nothing raises and nothing is believed."""
    assert inband.read_comment(MARK + document) is None


@given(st.binary(max_size=80))
def test_no_bytes_raise(tail):
    """Any line."""
    inband.read_comment(MARK + tail)
    inband.read_server_timing(tail.decode("latin-1"))


@pytest.mark.parametrize(
    "value",
    ["", "db;dur=5", "llm_trace_prefill", "llm_trace_prefill;dur=x", "llm_trace_prefill;dur=-1"],
)
def test_a_header_of_somebody_elses_is_no_ledger(value):
    """Other metrics are passed over."""
    assert inband.read_server_timing(value) is None


@pytest.mark.parametrize("others", ["", 'db;dur=5, cache;desc="a, b"'])
def test_what_somebody_else_says_beside_the_ledger_stays(others):
    """Before it and behind it."""
    ledger = inband.server_timing(PHASES)

    assert inband.other_timings(ledger) == ""
    assert inband.other_timings(", ".join(filter(None, [others, ledger]))) == others
    assert inband.other_timings(", ".join(filter(None, [ledger, others]))) == others
