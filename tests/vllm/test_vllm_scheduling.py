"""The scheduler factory: vLLM's own choice of scheduler, which no fault of ours can end."""

import sys
from collections import Counter
from types import ModuleType, SimpleNamespace

import pytest
from scheduler_doubles import LOADING, CoreOutput, CoreOutputs, Request, Scheduler

import llm_trace_vllm
from llm_trace.core import faults
from llm_trace_vllm import scheduling
from llm_trace_vllm.news import CARRIER
from llm_trace_vllm.teller import Teller


class AsyncScheduler(Scheduler):
    """vLLM's other scheduler."""


class RequestStatus:
    """vLLM's, as far as it is used."""

    WAITING_FOR_REMOTE_KVS = LOADING


class SchedulerConfig:
    """vLLM's: says which scheduler it would take where none is asked for."""

    def __init__(self, *, async_scheduling=False):
        self.async_scheduling = async_scheduling
        self.scheduler_cls = "llm_trace_vllm.scheduler"

    def get_scheduler_cls(self):
        """The class, or what was asked for."""
        if self.scheduler_cls is not None:
            return llm_trace_vllm.scheduler
        return AsyncScheduler if self.async_scheduling else Scheduler


def module(monkeypatch, name, **contents):
    """Make `name` importable."""
    made = ModuleType(name)
    vars(made).update(contents)
    monkeypatch.setitem(sys.modules, name, made)
    return made


@pytest.fixture(autouse=True)
def vllm(monkeypatch):
    """As much of vLLM as the factory imports; counters as in a new process."""
    monkeypatch.setattr(faults, "internal", Counter())
    monkeypatch.setattr(faults, "_logged", set())
    for name in ("vllm", "vllm.v1", "vllm.v1.core", "vllm.v1.core.sched"):
        module(monkeypatch, name)
    module(monkeypatch, "vllm.v1.request", RequestStatus=RequestStatus)
    outputs = {"EngineCoreOutput": CoreOutput, "EngineCoreOutputs": CoreOutputs}
    return module(monkeypatch, "vllm.v1.engine", **outputs)


def config(**more):
    """The whole configuration."""
    return SimpleNamespace(scheduler_config=SchedulerConfig(**more))


@pytest.mark.parametrize(("asynchronous", "base"), [(False, Scheduler), (True, AsyncScheduler)])
def test_the_base_is_vllms_own_choice(asynchronous, base):
    """And the configuration stays as it was."""
    given = config(async_scheduling=asynchronous)
    made = given.scheduler_config.get_scheduler_cls()(vllm_config=given, budget=9)

    assert isinstance(made, base)
    assert type(made).__name__ == f"Telling{base.__name__}"
    assert (made.vllm_config, made.budget) == (given, 9)
    assert given.scheduler_config.scheduler_cls == "llm_trace_vllm.scheduler"


@pytest.mark.parametrize(("asynchronous", "name"), [(False, ""), (True, "Async")])
def test_a_diffusion_model_keeps_its_scheduler(monkeypatch, asynchronous, name):
    """From 0.32 on vLLM sets its class only where none was asked for."""
    names = ("DiffusionScheduler", "DiffusionAsyncScheduler")
    own = {name: type(name, (Scheduler,), {}) for name in names}
    made = module(monkeypatch, "vllm.v1.core.sched.diffusion_scheduler", **own)
    sys.modules["vllm.v1.core.sched"].diffusion_scheduler = made
    given = config(async_scheduling=asynchronous)
    given.diffusion_config = object()

    assert isinstance(llm_trace_vllm.scheduler(given), own[f"Diffusion{name}Scheduler"])


def test_a_whole_life():
    """Queued, scheduled, computed and told, with vLLM's own types and on the real clock."""
    engine = llm_trace_vllm.scheduler(config())
    assert engine.add_request(Request("a", num_prompt_tokens=3)) == "added"
    outputs = engine.update_from_output(engine.schedule(throttle_prefills=True), 5)

    carrier, own = outputs[0].outputs
    assert (carrier.request_id, carrier.new_token_ids) == (CARRIER, [])
    assert own == CoreOutput("a", [5])


def test_a_transfer_is_watched():
    """By vLLM's own status, where a connector brings KV caches from elsewhere."""
    engine = llm_trace_vllm.scheduler(config())
    engine.connector, engine.remote = object(), {"a"}
    engine.add_request(Request("a", num_prompt_tokens=3))
    engine.schedule()

    assert set(engine._llm_trace._transfers) == {"a"}


def test_a_vllm_without_the_status_of_a_transfer_tells_the_rest(monkeypatch):
    """Nothing is logged: it has no such thing."""
    monkeypatch.delattr(RequestStatus, "WAITING_FOR_REMOTE_KVS")
    engine = llm_trace_vllm.scheduler(config())
    engine.connector = object()
    engine.add_request(Request("a", num_prompt_tokens=3))
    outputs = engine.update_from_output(engine.schedule(), 5)

    assert [output.request_id for output in outputs[0].outputs] == [CARRIER, "a"]


def test_a_turn_of_a_session_is_not_watched():
    """vLLM puts it into the request that it has: ours is never scheduled by itself."""
    engine = llm_trace_vllm.scheduler(config())
    engine.requests = Session()
    engine.add_request(Request("a"))

    assert engine._llm_trace._waiting == {}


class Session(dict):
    """Keeps the first turn."""

    def __setitem__(self, key, value):
        super().__setitem__(key, Request("first"))


def test_a_vllm_without_its_types_gets_its_scheduler(vllm, caplog):
    """The engine starts, and says that it tells less."""
    del vllm.EngineCoreOutput
    with faults.production():
        made = llm_trace_vllm.scheduler(config())

    assert type(made) is Scheduler
    assert faults.internal == {"vllm.scheduler": 1}
    assert len(caplog.records) == 1


@pytest.mark.parametrize("method", ["added", "loading", "scheduled", "updated"])
def test_a_fault_of_ours_is_the_last(monkeypatch, caplog, method):
    """vLLM's own result is given, the fault counted and logged once, and nothing told any more."""

    def broken(*_args):
        raise RuntimeError("a surface that we do not know")

    monkeypatch.setattr(Teller, method, broken)
    engine = llm_trace_vllm.scheduler(config())
    engine.connector = object()
    with faults.production():
        for number in range(3):
            assert engine.add_request(Request(f"a-{number}", num_prompt_tokens=1)) == "added"
            outputs = engine.update_from_output(engine.schedule(), 5)

    assert [output.request_id for output in outputs[0].outputs] == ["a-0", "a-1", "a-2"]
    assert engine._llm_trace is None
    assert faults.internal == {"vllm.scheduler": 1}
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    "lost", ["client_index", "events", "num_prompt_tokens", "num_computed_tokens", "is_finished"]
)
def test_a_request_that_lost_a_name_ends_nothing(lost):
    """Each name that the teller reads may go in a later vLLM."""
    kept = {"request_id", "client_index", "events", "num_prompt_tokens", "num_output_tokens"}
    kept |= {"num_computed_tokens", "is_finished"}
    whole = Request("a", num_prompt_tokens=9)
    double = SimpleNamespace(**{name: getattr(whole, name) for name in kept - {lost}})

    teller = Teller(CoreOutput, CoreOutputs)
    engine = scheduling.telling(Renamed, teller)()
    with faults.production():
        engine.add_request(double)
        assert engine.update_from_output(engine.schedule(), 5) == {}

    assert faults.internal == {"vllm.scheduler": 1}


def test_a_scheduler_that_lost_its_requests_ends_nothing():
    """vLLM may keep them under another name."""
    engine = scheduling.telling(Elsewhere, Teller(CoreOutput, CoreOutputs))()
    with faults.production():
        assert engine.add_request(Request("a")) == "added"

    assert faults.internal == {"vllm.scheduler": 1}


class Elsewhere:
    """A scheduler that keeps its requests under another name."""

    def add_request(self, request):
        """Keep it."""
        return "added"


class Renamed(Scheduler):
    """A scheduler that needs none of the names."""

    def add_request(self, request):
        """Keep it."""
        self.requests["a"] = request

    def schedule(self):
        """One chunk."""
        new = [SimpleNamespace(req_id="a")]
        return SimpleNamespace(
            num_scheduled_tokens={"a": 4}, scheduled_new_reqs=new, finished_req_ids=set()
        )

    def update_from_output(self, step, token):
        """No output."""
        return {}
