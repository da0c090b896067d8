"""The contract for any engine: a context manager, five moments, and a usage."""

import asyncio
import math
from collections import Counter
from contextlib import suppress

import pytest

from llm_trace.core import faults
from llm_trace.core.engine_call import MOMENTS, EngineCall
from llm_trace.core.identity import TraceIdentity
from llm_trace.core.record import CallRecord
from llm_trace.core.timeline import MAX_CALLS, NO_REQUEST, Timeline
from llm_trace.core.usage import Usage
from llm_trace.testing import START, FakeClock

TRACE = 0xABC


@pytest.fixture
def clock():
    """Time, standing still."""
    return FakeClock()


@pytest.fixture
def timeline(clock):
    """A request of a trace, whose spans are numbered from 101."""
    timeline = Timeline(clock.clock, new_span_id=iter(range(101, 999)).__next__)
    timeline.identity = TraceIdentity(TRACE, 7)
    return timeline


@pytest.fixture(autouse=True)
def dropped(monkeypatch):
    """The counter of refused measurements, empty."""
    monkeypatch.setattr(faults, "dropped", Counter())
    return lambda: faults.dropped


def frozen(**facts):
    """The record of a call entered at once of which nothing else is known but `facts`."""
    bare = {
        "operation": "chat",
        "model": "m",
        "source": "app",
        "span_id": 101,
        "parent_span_id": 0,
        "handed_off": START,
        "usage": Usage(),
        "cold": False,
        "attributes": {},
    }
    zero = dict.fromkeys(
        ("queued", "scheduled", "first_token", "last_token", "returned", "preemptions", "requeued"),
        0,
    )
    return CallRecord(**{**bare, **zero, **facts})


def test_a_call_is_stamped_from_hand_off_to_return(clock, timeline):
    """Every moment marked without a stamp is now."""
    with EngineCall(timeline, "chat", "m", attributes={"k": 1}) as call:
        for moment in ("queued", "scheduled", "first_token", "last_token"):
            clock.advance(10)
            call.mark(moment)
        clock.advance(10)

    expected = frozen(
        queued=START + 10,
        scheduled=START + 20,
        first_token=START + 30,
        last_token=START + 40,
        returned=START + 50,
        attributes={"k": 1},
    )
    assert expected == call.freeze()
    assert [call] == timeline.calls


def test_a_call_can_be_entered_by_coroutines(clock, timeline):
    """`async with` is the same as `with`."""

    async def generate():
        async with EngineCall(timeline, "chat", "m") as call:
            clock.advance(5)
        return call

    assert frozen(returned=START + 5) == asyncio.run(generate()).freeze()


def test_the_first_queued_scheduled_and_token_win_and_the_latest_last_token(timeline):
    """A repeated event changes nothing, except that the last token is the latest."""
    with EngineCall(timeline, "chat", "m") as call:
        for at in (10, 20, 15):
            for moment in ("queued", "scheduled", "first_token", "last_token"):
                call.mark(moment, START + at)

    expected = frozen(
        queued=START + 10,
        scheduled=START + 10,
        first_token=START + 10,
        last_token=START + 20,
        returned=START,
    )
    assert expected == call.freeze()


def test_preemptions_are_counted_with_the_time_spent_waiting_again(timeline):
    """Each wait from a preemption to the next scheduling adds up; the first scheduling stands."""
    with EngineCall(timeline, "chat", "m") as call:
        for moment, at in [
            ("queued", 1),
            ("scheduled", 2),
            ("preempted", 10),
            ("queued", 11),
            ("scheduled", 15),
            ("preempted", 20),
            ("scheduled", 27),
            ("preempted", 40),
            ("scheduled", 30),
        ]:
            call.mark(moment, START + at)

    expected = frozen(
        queued=START + 1, scheduled=START + 2, returned=START, preemptions=3, requeued=12
    )
    assert expected == call.freeze()


@pytest.mark.parametrize("at", [0, -1, -0.5, 0.0, math.nan, math.inf, True, "7", b"7"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_stamp_that_is_no_time_is_counted_and_left_out(timeline, dropped, moment, at):
    """The first real stamp wins, so nonsense must not take its place."""
    with EngineCall(timeline, "chat", "m") as call:
        call.mark(moment, at)

    assert frozen(returned=START) == call.freeze()
    assert Counter(invalid_stamp=1) == dropped()


def test_an_unknown_moment_is_refused_loudly_in_tests(timeline):
    """The message says which moments there are."""
    call = EngineCall(timeline, "chat", "m")

    with pytest.raises(ValueError, match="unknown moment 'first': use queued, scheduled, preempt"):
        call.mark("first")


def test_an_unknown_moment_is_contained_in_production(timeline, monkeypatch):
    """A typo in an app costs a measurement, not a request."""
    monkeypatch.setattr(faults, "internal", Counter())

    with faults.production(), EngineCall(timeline, "chat", "m") as call:
        call.mark("first")

    assert frozen(returned=START) == call.freeze()
    assert Counter(engine_call=1) == faults.internal


def test_usage_may_come_in_parts(timeline):
    """What is not said again stays; what is no count is no word."""
    with EngineCall(timeline, "chat", "m") as call:
        call.usage(input_tokens=10, cached_tokens=4)
        call.usage(output_tokens=3, input_tokens=None, cached_tokens="many")
        call.usage(reasoning_tokens=2, output_tokens=5)

    assert frozen(returned=START, usage=Usage(10, 5, 4, 2)) == call.freeze()


def test_counted_tokens_stand_in_for_a_usage_that_nobody_said(timeline):
    """What an engine's ticks brought counts until the engine says how many there were."""
    call = EngineCall(timeline, "chat", "m")
    call.generated = 12

    counted = call.usage_now()
    call.usage(output_tokens=11)

    assert [Usage(output_tokens=12), Usage(output_tokens=11)] == [counted, call.usage_now()]


def test_headers_name_the_calls_own_span(timeline):
    """The upstream's spans become children of the call, which is a client's span then."""
    with EngineCall(timeline, "chat", "m") as call:
        headers = call.headers()

    expected = {"traceparent": f"00-{TRACE:032x}-{101:016x}-01"}
    assert expected == headers
    assert frozen(returned=START, source="upstream") == call.freeze()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError(), "ValueError"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (asyncio.CancelledError(), None),
        (GeneratorExit(), None),
    ],
)
def test_an_exception_in_a_call_is_noted_and_goes_on_unchanged(timeline, error, kind):
    """Being told to stop, as a cancelled task or a closed generator is, is no error."""
    call = EngineCall(timeline, "chat", "m")

    with pytest.raises(type(error)) as caught, call:
        raise error

    assert error is caught.value
    assert frozen(returned=START, error_type=kind) == call.freeze()


def test_a_call_ends_once(clock, timeline):
    """Ending it again changes nothing: the first end is the end."""
    call = EngineCall(timeline, "chat", "m")
    with call:
        clock.advance(3)
        call.end()
        clock.advance(3)
        call.end(ValueError())

    assert frozen(returned=START + 3) == call.freeze()


def test_a_call_that_is_retried_is_one_call(clock, timeline):
    """From the first hand-off to the last return, with one span; a failure before is made good."""
    call = EngineCall(timeline, "chat", "m")
    with suppress(ConnectionError), call:
        clock.advance(3)
        raise ConnectionError
    with call:
        clock.advance(3)

    assert [call] == timeline.calls
    assert frozen(returned=START + 6) == call.freeze()


def test_the_number_of_calls_is_bounded(timeline, dropped):
    """A call past the bound is not kept, and hands on its parent's span instead of its own."""
    for _ in range(MAX_CALLS):
        with EngineCall(timeline, "chat", "m"):
            pass
    surplus = EngineCall(timeline, "chat", "m")
    surplus.parent_span_id = 55

    with surplus:
        headers = surplus.headers()

    expected = MAX_CALLS
    assert expected == len(timeline.calls)
    assert Counter(calls=1) == dropped()
    assert {"traceparent": f"00-{TRACE:032x}-{55:016x}-01"} == headers


def test_a_call_after_the_end_of_the_request_is_counted_and_changes_nothing(timeline, dropped):
    """Work that outlives its request may go on calling; nothing is kept and nothing raises."""
    with EngineCall(timeline, "chat", "m") as early:
        before = early.freeze()
        timeline.closed = True
        early.mark("first_token")
        early.usage(output_tokens=3)
    with EngineCall(timeline, "chat", "m") as late:
        pass

    assert before == early.freeze()
    assert [early] == timeline.calls
    expected = (0, 0)
    assert expected == (late.span_id, late.returned)
    assert Counter(late_mark=1, late_usage=1, late_call=1) == dropped()


def test_a_call_outside_a_request_is_a_quiet_no_op(dropped):
    """Nothing is kept and nothing is counted: there was no request to measure."""
    with EngineCall(NO_REQUEST, "chat", "m") as call:
        call.mark("first_token")
        call.usage(output_tokens=3)
        headers = call.headers()

    expected = ({}, [], 0)
    assert expected == (headers, NO_REQUEST.calls, call.span_id)
    assert Counter() == dropped()


def test_a_frozen_call_does_not_change(timeline):
    """What an app adds to the attributes later is not in a record that was made before."""
    call = EngineCall(timeline, "chat", "m")
    record = call.freeze()

    call.attributes["late"] = 1

    expected = {}
    assert expected == record.attributes
