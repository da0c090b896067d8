"""The live side of a request: bounded, counted, and quiet once it is over."""

from collections import Counter
from types import SimpleNamespace

import pytest

from llm_trace.core import faults
from llm_trace.core import timeline as t
from llm_trace.core.engine_call import EngineCall
from llm_trace.core.identity import TraceIdentity
from llm_trace.core.ledger import MAX_CLAIMS
from llm_trace.core.timeline import MAX_ATTRIBUTES, NO_REQUEST, Timeline
from llm_trace.core.tracer import NO_TRACER
from llm_trace.testing import START, WALL, FakeClock

INBOUND = (
    (b"host", b"example"),
    (b"traceparent", b"00-0000000000000000000000000000000a-000000000000000b-01"),
    (b"tracestate", b"vendor=\xe9"),
    (b"authorization", b"secret"),
)


@pytest.fixture
def clock():
    """Time, standing still."""
    return FakeClock()


@pytest.fixture
def timeline(clock):
    """A request whose spans are numbered from 101."""
    return Timeline(clock.clock, INBOUND, new_span_id=iter(range(101, 999)).__next__)


@pytest.fixture(autouse=True)
def dropped(monkeypatch):
    """The counter of refused measurements, empty."""
    monkeypatch.setattr(faults, "dropped", Counter())
    return lambda: faults.dropped


def rows(timeline):
    """The intervals that were kept, as tuples."""
    return [
        (i.phase, i.start - START, i.end and i.end - START, i.span_id, i.parent_span_id)
        for i in timeline.intervals
    ]


def test_a_request_has_one_wall_anchor(clock, timeline):
    """Wall time is read once; when it steps back later, no difference sees it."""
    clock.wall -= 60_000_000_000
    clock.advance(500)

    timeline.admit()

    expected = (START, WALL - START, START + 500)
    assert expected == (
        timeline.received,
        timeline.wall_offset,
        timeline.admitted,
    )


def test_the_first_admission_counts(clock, timeline):
    """A second word that the request was accepted changes nothing."""
    for _ in range(2):
        clock.advance(7)
        timeline.admit()

    admitted = timeline.admitted
    expected = START + 7
    assert expected == admitted


def test_intervals_may_be_nested_and_overlap(clock, timeline):
    """Each keeps its own stamps, whatever the order in which they are closed."""
    outer = timeline.open_interval("agent", {})
    clock.advance(1)
    inner = timeline.open_interval("retrieval", {"k": 1}, outer.span_id)
    clock.advance(1)
    timeline.close_interval(outer)
    clock.advance(1)
    timeline.close_interval(inner)

    expected = [("agent", 0, 2, 101, 0), ("retrieval", 1, 3, 102, 101)]
    assert expected == rows(timeline)


def test_an_interval_ends_once(clock, timeline):
    """A second end, with or without an error, changes nothing."""
    interval = timeline.open_interval("rerank", {})
    clock.advance(1)
    timeline.close_interval(interval)
    clock.advance(1)
    timeline.close_interval(interval, ValueError())

    expected = ([("rerank", 0, 1, 101, 0)], None)
    assert expected == (rows(timeline), interval.error_type)


def test_the_number_of_intervals_is_bounded(timeline, dropped):
    """One past the bound can be used, is not kept, and its children belong to its parent."""
    for _ in range(MAX_CLAIMS):
        timeline.open_interval("rerank", {})
    surplus = timeline.open_interval("rerank", {}, 55)
    timeline.close_interval(surplus)

    expected = MAX_CLAIMS
    assert expected == len(timeline.intervals)
    assert surplus.span_id == surplus.parent_span_id
    assert Counter(phases=1) == dropped()


def test_the_number_of_attributes_is_bounded(timeline, dropped):
    """Keys past the bound are counted; the value of a known key can still change."""
    timeline.annotate({f"k{n}": n for n in range(MAX_ATTRIBUTES + 3)})
    timeline.annotate({"k0": "changed"})

    expected = {f"k{n}": n for n in range(MAX_ATTRIBUTES)} | {"k0": "changed"}
    assert expected == timeline.attributes
    assert Counter(attributes=3) == dropped()


def test_late_events_are_counted_and_change_nothing(clock, timeline, dropped):
    """Work that outlives its request may go on talking; what was open has already ended."""
    still_open = timeline.open_interval("rerank", {})
    timeline.closed = True
    clock.advance(9)

    timeline.admit()
    timeline.annotate({"k": 1})
    timeline.close_interval(still_open, ValueError())
    timeline.close_interval(timeline.open_interval("too late", {}))

    expected = ([("rerank", 0, 0, 101, 0)], 0, {})
    assert expected == (
        rows(timeline),
        timeline.admitted,
        timeline.attributes,
    )
    assert Counter(late_admission=1, late_attributes=1, late_phase=1) == dropped()


def test_outside_a_request_nothing_is_kept_and_nothing_is_counted(dropped):
    """The no-op handle takes every word and remembers none."""
    NO_REQUEST.admit()
    NO_REQUEST.annotate({"k": 1})
    NO_REQUEST.close_interval(NO_REQUEST.open_interval("rerank", {}))

    expected = (0, {}, [], [], {}, None, None)
    assert expected == (
        NO_REQUEST.admitted,
        NO_REQUEST.attributes,
        NO_REQUEST.intervals,
        NO_REQUEST.calls,
        NO_REQUEST.headers(),
        NO_REQUEST.trace_id,
        NO_REQUEST.span_id,
    )
    assert Counter() == dropped()


def test_without_a_tracer_the_inbound_trace_context_is_handed_on(timeline):
    """Only the headers of the trace go out, as they came in."""
    expected = {
        "traceparent": "00-0000000000000000000000000000000a-000000000000000b-01",
        "tracestate": "vendor=é",
    }
    assert expected == timeline.headers(9)
    assert NO_TRACER.begin((), "name") is None


def test_with_an_identity_headers_name_our_span(timeline):
    """Children hang on the root or on the span that was asked for, with the trace's state."""
    timeline.identity = TraceIdentity(0xAB, 0xCD, sampled=False, trace_state="vendor=1")
    trace = f"00-{0xAB:032x}"

    expected = [
        {"traceparent": f"{trace}-{0xCD:016x}-00", "tracestate": "vendor=1"},
        {"traceparent": f"{trace}-{0xEF:016x}-00", "tracestate": "vendor=1"},
    ]
    assert expected == [timeline.headers(), timeline.headers(0xEF)]
    assert (f"{0xAB:032x}", f"{0xCD:016x}") == (timeline.trace_id, timeline.span_id)


def test_an_unsettled_tracer_makes_nothing_current():
    """Without a provider a phase finds nothing to activate and nothing to undo."""
    token = NO_TRACER.activate(TraceIdentity(1, 2), 3)

    assert token is None
    assert NO_TRACER.deactivate(token) is None


def test_a_span_id_is_never_zero(monkeypatch):
    """Zero would mean that there is no span."""
    bits = iter([0, 5])
    monkeypatch.setattr(t, "random", SimpleNamespace(getrandbits=lambda _: next(bits)))

    expected = [1, 5]
    assert expected == [t.random_span_id(), t.random_span_id()]


class TracerThatRaises:
    """Fails whatever it is asked to do."""

    def begin(self, headers, name):
        """Fail."""
        raise RuntimeError(name)

    def activate(self, identity, span_id=0):
        """Fail."""
        raise RuntimeError(span_id)

    def deactivate(self, token):
        """Fail."""
        raise RuntimeError(token)


def test_a_tracer_that_raises_is_contained(monkeypatch):
    """Making a span current, or undoing it, never raises into the app; it is counted."""
    monkeypatch.setattr(faults, "internal", Counter())
    timeline = Timeline(FakeClock().clock, tracer=TracerThatRaises())
    timeline.identity = TraceIdentity(trace_id=1, span_id=2)

    with faults.production():
        token = timeline.activate()
        timeline.deactivate(token)

    expected = (None, {"tracer": 2})
    assert expected == (token, dict(faults.internal))


def test_an_answer_in_one_piece_decodes_once_the_engine_has_a_token():
    """Nobody waits for its first token to be sent."""
    timeline = Timeline(FakeClock().clock)
    call = EngineCall(timeline, "chat", "m")
    timeline.open_call(call)
    call.mark("first_token")
    phases = []
    for timeline.streams in (True, False):
        phases.append(timeline.live_phase())

    assert phases == ["first_token", "decode"]
