"""Records reach every observer; requests in flight are counted by phase."""

import os
import weakref
from collections import Counter

import pytest

from llm_trace import semconv as s
from llm_trace.core import engines, faults
from llm_trace.core.clock import SYSTEM
from llm_trace.core.dispatch import Dispatch
from llm_trace.core.engine_call import EngineCall
from llm_trace.core.freeze import Answer, freeze
from llm_trace.core.outcome import Ending
from llm_trace.core.record import HttpFacts
from llm_trace.core.timeline import Timeline
from llm_trace.core.tracer import NO_TRACER
from llm_trace.testing import FakeClock, Recorder


class BrokenObserver:
    """Fails on every record."""

    def observe(self, record):
        """Fail."""
        raise RuntimeError(record.outcome)


@pytest.fixture
def record():
    """The record of some finished request."""
    timeline = Timeline(FakeClock().clock)
    answer = Answer(Ending(status=200, complete=True), HttpFacts())
    return freeze(timeline, answer, timeline.received + 5)


@pytest.fixture(autouse=True)
def no_servers(monkeypatch):
    """No integrations, and no dispatches of other tests."""
    monkeypatch.setattr(engines, "_hooks", [])
    monkeypatch.setattr(engines, "_watched", weakref.WeakSet())
    monkeypatch.setattr(faults, "internal", Counter())


def test_every_observer_gets_the_record(record):
    """Observers hear of a request in the order in which they were given."""
    first, second = Recorder(), Recorder()

    Dispatch(observers=(o for o in (first, second))).deliver(record)

    assert [[record], [record]] == [first.records, second.records]


def test_a_broken_observer_costs_no_other_its_record(record):
    """Its fault is contained and counted under its name."""
    recorder = Recorder()

    with faults.production():
        Dispatch(observers=[BrokenObserver(), recorder]).deliver(record)

    assert record is recorder.record
    assert Counter(BrokenObserver=1) == faults.internal


def test_a_broken_observer_is_loud_in_tests(record):
    """Under pytest an observer's fault is raised."""
    with pytest.raises(RuntimeError, match="ok"):
        Dispatch(observers=[BrokenObserver()]).deliver(record)


def test_by_default_nobody_listens(record):
    """A dispatch of nothing has no tracer, no observers and nothing to flush."""
    dispatch = Dispatch()

    dispatch.deliver(record)
    dispatch.flush()

    assert dispatch.tracer is NO_TRACER
    assert not dispatch.observers


def engine_at(*moments):
    """A request whose engine call has seen these moments."""
    timeline = Timeline(FakeClock().clock)
    call = EngineCall(timeline, "chat", "m")
    timeline.open_call(call)
    for moment in moments:
        call.mark(moment)
    return timeline


def app_at(*, admitted=False, body=False, phases=(), returned=False, token=False):
    """A request whose app has done this much."""
    timeline = engine_at() if returned else Timeline(FakeClock().clock)
    for call in timeline.calls:
        call.end()
    if admitted:
        timeline.admit()
    timeline.body_complete = timeline.received if body else 0
    for name, is_open in phases:
        interval = timeline.open_interval(name, {})
        if not is_open:
            timeline.close_interval(interval)
    timeline.first_token_sent = timeline.received if token else 0
    return timeline


LIVE = [
    (app_at(), s.ADMISSION),
    (app_at(body=True), s.UNATTRIBUTED),
    (app_at(admitted=True), s.UNATTRIBUTED),
    (app_at(admitted=True, phases=[(s.RETRIEVAL, True)]), s.RETRIEVAL),
    (app_at(admitted=True, phases=[(s.RETRIEVAL, False)]), s.UNATTRIBUTED),
    (app_at(admitted=True, phases=[("outer", True), ("inner", True)]), "inner"),
    (app_at(admitted=True, returned=True), s.UNATTRIBUTED),
    (engine_at(), s.ENGINE),
    (engine_at("queued"), s.QUEUE_WAIT),
    (engine_at("queued", "scheduled"), s.PREFILL),
    (engine_at("queued", "scheduled", "first_token"), s.FIRST_TOKEN),
    (app_at(token=True), s.DECODE),
]


@pytest.mark.parametrize(("timeline", "expected"), LIVE)
def test_a_live_request_is_in_the_phase_that_was_last_heard_of(timeline, expected):
    """Gauges read the phase from the latest sign of the engine, the app or the client."""
    assert expected == timeline.live_phase()


def test_live_requests_are_counted_by_phase():
    """Each request in flight is counted once, in the phase that it is in now."""
    dispatch = Dispatch()
    dispatch.live.update(timeline for timeline, _ in LIVE)

    assert Counter(phase for _, phase in LIVE) == dispatch.live_phases()


def test_integrations_see_the_requests_of_every_dispatch():
    """What is in flight in any server of the process can be found by an engine's integration."""
    one, other = Dispatch(), Dispatch()
    timelines = [app_at(), app_at()]

    one.live.add(timelines[0])
    other.live.add(timelines[1])

    assert set(timelines) == set(engines.live_requests())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_has_nothing_of_its_parents_in_flight():
    """A pool that is forked inside a request lives on, and would show it as never ending."""
    dispatch = Dispatch()
    dispatch.live.add(app_at())

    child = os.fork()
    if not child:
        os._exit(len(dispatch.live))

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(dispatch.live) == 1


def test_an_integration_meets_the_server_it_runs_in():
    """Hooks get the scope of the first request; one that fails is contained, the next is called."""
    met = []
    scope = {"type": "http"}
    engines.on_first_request(lambda scope: scope["missing"])
    engines.on_first_request(met.append)

    with faults.production():
        engines.meet(scope)

    assert [scope] == met
    assert Counter(engine_hook=1) == faults.internal


def test_the_clock_of_production_is_the_hosts():
    """Monotonic time never steps back, and wall time is in Unix nanoseconds."""
    before = SYSTEM.monotonic_ns()

    timeline = Timeline()

    assert before <= timeline.received <= SYSTEM.monotonic_ns()
    assert SYSTEM.wall_ns() >= timeline.received + timeline.wall_offset
