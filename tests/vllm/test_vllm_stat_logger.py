"""The stat logger: meets the engine at the first request, serves the lower tiers, never raises."""

import importlib
import sys
from collections import Counter
from types import ModuleType, SimpleNamespace

import pytest
from vllm_doubles import Engine, Http, Processor, seconds

import llm_trace_vllm
from llm_trace.core import engines, faults
from llm_trace_vllm.tiers import ENGINE_EVENTS, FINISHED_STATS, STATS_SWEEP

LOGGERS = "vllm.v1.metrics.loggers"


class Base:
    """vLLM's base class: wants to be called by nobody."""


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Hooks, names and counters as in a new process."""
    monkeypatch.setattr(faults, "internal", Counter())
    monkeypatch.setattr(faults, "_logged", set())
    monkeypatch.setattr(engines, "_hooks", [])
    monkeypatch.setattr(engines, "served_models", set())


def load(monkeypatch, **classes):
    """The integration's module, beside a vLLM that has these base classes."""
    for depth in range(1, 5):
        name = ".".join(LOGGERS.split(".")[:depth])
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    vars(sys.modules[LOGGERS]).update(classes)
    monkeypatch.delitem(sys.modules, "llm_trace_vllm.stat_logger", raising=False)
    module = importlib.import_module("llm_trace_vllm.stat_logger")
    monkeypatch.delitem(sys.modules, "llm_trace_vllm.stat_logger")
    return module


@pytest.fixture
def module(monkeypatch):
    """The module beside a present vLLM."""
    return load(monkeypatch, AggregateStatLoggerBase=Base)


def config(names):
    """vLLM's configuration, as far as it is read."""
    return SimpleNamespace(model_config=SimpleNamespace(served_model_name=names))


def scope(engine=None):
    """The ASGI scope of a server that runs `engine`."""
    return {"app": SimpleNamespace(state=SimpleNamespace(engine_client=engine))}


def test_the_base_class_is_vllms(module, monkeypatch):
    """vLLM takes only subclasses of its own; older ones have one logger for each engine."""
    older = load(monkeypatch, StatLoggerBase=Base)

    assert issubclass(module.LedgerStatLogger, Base)
    assert issubclass(older.LedgerStatLogger, Base)


@pytest.mark.parametrize(
    ("names", "served"),
    [(["a", "b"], {"a", "b"}), ("a", {"a"}), (None, set()), ([], set())],
)
def test_served_names_become_labels(module, names, served):
    """One name, several, or none."""
    module.LedgerStatLogger(config(names), [0, 1])

    assert engines.served_models == served


def test_a_strange_configuration_does_not_stop_vllm(module):
    """One that cannot be read: counted, and vLLM starts."""

    class Strange:
        @property
        def model_config(self):
            raise RuntimeError

    with faults.production():
        logger = module.LedgerStatLogger(Strange())
        logger.record()
        logger.log_engine_initialized()

    assert faults.internal == Counter({"vllm.stat_logger": 1})


def test_the_first_request_joins_the_engine(module):
    """The server is met through the scope of its first request; nothing else is needed."""
    processor = Processor()
    engine = Engine(processor)
    logger = module.LedgerStatLogger(config("a"))
    engines.meet(scope(engine))

    assert logger._join.tier == ENGINE_EVENTS
    assert logger._join.processor is processor


@pytest.mark.parametrize("met", [{}, {"app": None}, {"app": SimpleNamespace()}, scope(None)])
def test_a_server_without_an_engine_is_passed_by(module, met):
    """Another app in the same process, or a front-end that only renders."""
    logger = module.LedgerStatLogger(config("a"))
    engines.meet(met)
    logger.record(iteration_stats=SimpleNamespace())

    assert logger._join is None


def test_a_server_whose_engine_nobody_can_see_is_said(module, caplog, monkeypatch):
    """One warning says what is missing and what to do; an app that joined by hand hears none."""
    monkeypatch.setattr(module, "joins", set())
    logger = module.LedgerStatLogger(config("a"))
    logger.meet(scope(None))
    monkeypatch.setattr(module, "joins", {object()})
    logger.meet(scope(None))

    assert len(caplog.records) == 1
    assert "llm_trace_vllm.trace(engine)" in caplog.text


def test_a_lower_tier_is_said(module, caplog):
    """Whoever wonders about missing phases finds the reason in the log."""
    logger = module.LedgerStatLogger(config("a"))
    logger.meet(scope(Engine()))

    assert "finished-stats" in caplog.text
    assert len(caplog.records) == 1


def test_records_are_not_read_while_events_come(module, monkeypatch):
    """The best tier pays nothing for the others."""
    logger = module.LedgerStatLogger(config("a"))
    logger.meet(scope(Engine(Processor())))
    monkeypatch.setattr(module, "fallback", None)

    logger.record(None, object())

    assert logger._join.tier == ENGINE_EVENTS
    assert not faults.internal


def test_states_are_swept_after_each_step(module):
    """Even a step without statistics of its own, as those of pure prefill are."""
    http = Http(request_metadata=SimpleNamespace(request_id="chatcmpl-a"))
    stats = SimpleNamespace(queued_ts=seconds(http.fake.now))
    state = SimpleNamespace(request_id="chatcmpl-a", stats=stats)
    logger = module.LedgerStatLogger(config("a"))
    logger.meet(scope(Engine(SimpleNamespace(request_states={"chatcmpl-a": state}))))
    logger.record(object(), None, mm_cache_stats=None, engine_idx=1)

    assert logger._join.tier == STATS_SWEEP
    assert http.call.queued == http.fake.now


def test_finished_requests_are_placed(module):
    """Without states, what the step finished is all there is; a step may have finished nothing."""
    http = Http(request_metadata=SimpleNamespace(request_id="chatcmpl-a"))
    logger = module.LedgerStatLogger(config("a"))
    logger.meet(scope(Engine()))
    logger.record(object(), None)
    done = SimpleNamespace(request_id="chatcmpl-a", decode_time=0.5)
    logger.record(object(), SimpleNamespace(finished_requests=[done]))

    assert logger._join.tier == FINISHED_STATS
    assert http.call.first_token == http.call.last_token - 500_000_000


def test_a_tier_that_keeps_failing_is_given_up(module):
    """Every fault is contained; after eight nothing is tried again."""
    logger = module.LedgerStatLogger(config("a"))
    logger.meet(scope(Engine(SimpleNamespace(request_states=None))))
    with faults.production():
        for _ in range(20):
            logger.record(object(), None)

    assert faults.internal == Counter({"vllm.record": 8})


def test_what_the_scheduler_reports_reaches_the_join(module):
    """With the engine that the step was of; a client of two engines tells their steps apart."""
    heard = []
    logger = module.LedgerStatLogger(config("a"), [0, 1])
    logger.meet(scope(Engine(Processor())))
    logger._join.reported = lambda *told: heard.append(told)
    stats = object()
    logger.record(scheduler_stats=stats, iteration_stats=None, engine_idx=1)
    logger.record(None, None)

    assert heard == [(stats, 1), (None, 0)]
    assert logger._join.ranks == 2


def test_a_report_that_is_strange_ends_nothing(module):
    """Statistics of a version that we do not know: contained, and after eight not asked again."""
    logger = module.LedgerStatLogger(config("a"))
    logger.meet(scope(Engine(Processor())))
    with faults.production():
        for _ in range(20):
            logger.record(object(), None)

    assert faults.internal == Counter({"vllm.record": 8})


def test_sleep_and_wake_reach_the_join(module):
    """vLLM says 1 and the level, or 0; before any request there is nobody to tell."""
    heard = []
    logger = module.LedgerStatLogger(config("a"))
    logger.record_sleep_state(1, 2)
    logger.meet(scope(Engine(Processor())))
    logger._join.slept = lambda *, asleep: heard.append(asleep)
    logger.record_sleep_state(1, 2)
    logger.record_sleep_state()
    logger.record_sleep_state(1, 2, "what a later version adds", more=True)

    assert heard == [True, False, True]


def test_a_pause_is_no_sleep(module):
    """At level 0 everything stays in memory: who waits for its end waits for no model."""
    heard = []
    logger = module.LedgerStatLogger(config("a"))
    logger.meet(scope(Engine(Processor())))
    logger._join.slept = lambda *, asleep: heard.append(asleep)
    logger.record_sleep_state(1, 0)
    logger.record_sleep_state(0, 0)

    assert heard == [False]


def test_a_fault_in_sleep_is_contained(module):
    """The engine goes to sleep whatever we make of it."""
    logger = module.LedgerStatLogger(config("a"))
    logger.meet(scope(Engine(Processor())))
    logger._join.slept = None
    with faults.production():
        logger.record_sleep_state(1, 1)

    assert faults.internal == Counter({"vllm.sleep": 1})


def test_an_engine_that_is_joined_by_hand_finds_its_logger(module):
    """vLLM made the logger with the engine's configuration: by that they know each other."""
    mine, other = config("a"), config("b")
    one, two = module.LedgerStatLogger(mine), module.LedgerStatLogger(other)
    engine = Engine(Processor())
    engine.vllm_config = mine

    assert one._join is None
    assert llm_trace_vllm.trace(engine) is one._join
    assert two._join is None
