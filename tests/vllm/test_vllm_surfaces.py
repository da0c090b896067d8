"""Each name of vLLM taken away or changed in turn: less detail, never an error, and vLLM unharmed.

The rows come from the one table of surfaces, so a new row is tested with no word here.
"""

from collections import Counter
from types import SimpleNamespace

import pytest
from scheduler_doubles import LOADING, Request, Scheduler
from test_vllm_stat_logger import load
from vllm_doubles import QUEUED, SCHEDULED, Http, seconds

from llm_trace.core import faults
from llm_trace_vllm import join as join_module
from llm_trace_vllm.scheduling import telling
from llm_trace_vllm.teller import Teller
from llm_trace_vllm.tiers import ENGINE_EVENTS, FINISHED_STATS, STATS_SWEEP
from vllm_versions.surfaces import (
    EVENTS,
    FEATURES,
    FINISHED,
    REACHED,
    STAT_LOGGER,
    SWEEP,
    TELLS,
    TRANSFERS,
    Field,
    Method,
)

TIERS = {*EVENTS, *SWEEP, *FINISHED}
FACTS = tuple(
    dict.fromkeys(
        surface
        for feature in FEATURES
        for way in feature.ways
        for surface in way
        if surface not in {*TIERS, *TELLS, *TRANSFERS, *STAT_LOGGER, *REACHED}
    )
)
"""What no tier depends on."""


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Counters as in a new process, and faults contained as in production."""
    monkeypatch.setattr(faults, "internal", Counter())
    monkeypatch.setattr(faults, "_logged", set())
    with faults.production():
        yield


def changes(surfaces):
    """Each field and method of `surfaces` without its name; each method with other arguments."""
    named = [s for s in surfaces if isinstance(s, Field | Method)]
    called = [s for s in named if isinstance(s, Method)]
    return [
        *(pytest.param(s, "gone", id=f"{s} gone") for s in named),
        *(pytest.param(s, "changed", id=f"{s} changed") for s in called),
    ]


class Vllm:
    """An engine client whose every object has the names of the table, but for one."""

    def __init__(self, lost, how):
        self.lost = (lost.owner, lost.name)
        self.changed = how == "changed"
        self.heard = []
        processor = self.made(
            "OutputProcessor",
            add_request=self._added,
            process_outputs=self._processed,
            request_states={},
        )
        scheduling = self.made("SchedulerConfig", policy="fcfs")
        self.engine = self.made(
            "AsyncLLM",
            output_processor=processor,
            vllm_config=self.made("VllmConfig", scheduler_config=scheduling),
            engine_core=self.made("AsyncMPClient", client_count=1),
        )
        self.processor = processor

    def made(self, owner, **names):
        """An object of a class, without what is lost."""
        kept = {k: v for k, v in names.items() if self.changed or (owner, k) != self.lost}
        return SimpleNamespace(**kept)

    def _added(self, *args, **kwargs):
        self.heard.append("added")

    def _processed(self, *args, **kwargs):
        self.heard.append("processed")
        return self.made("OutputProcessorOutput", reqs_to_abort=[])

    def call(self, name, *args):
        """vLLM calls its own method, by the arguments that it has in this version."""
        method = getattr(self.processor, name, None)
        if method is None:
            return
        if self.changed and self.lost == ("OutputProcessor", name):
            method(**{f"renamed_{n}": value for n, value in enumerate(args)})
        else:
            method(*args)

    def live(self, now):
        """One request from its hand-off to its end, and its state in the output processor."""
        request = self.made(
            "EngineCoreRequest",
            request_id="a-1",
            prompt_token_ids=[1, 2],
            lora_request=self.made("LoRARequest", lora_name="sql"),
            sampling_params=self.made("SamplingParams", extra_args={"kv_transfer_params": {}}),
        )
        self.call("add_request", request)
        stats = self.made(
            "RequestStateStats",
            queued_ts=seconds(now + 10),
            scheduled_ts=seconds(now + 20),
            first_token_ts=seconds(now + 30),
            last_token_ts=seconds(now + 30),
        )
        state = self.made(
            "RequestState", request_id="a-1", external_req_id="a", stats=stats, lora_name=None
        )
        if hasattr(self.processor, "request_states"):
            self.processor.request_states["a-1"] = state
        for reason in (None, "stop"):
            self.call("process_outputs", [self._output(now, reason)], seconds(now + 30))

    def _output(self, now, reason):
        events = [
            self.made("EngineCoreEvent", type=kind, timestamp=seconds(now + 10 * kind))
            for kind in (QUEUED, SCHEDULED)
        ]
        return self.made(
            "EngineCoreOutput",
            request_id="a-1",
            new_token_ids=[7],
            events=None if reason else events,
            finish_reason=reason,
            prefill_stats=self.made(
                "PrefillStats", num_cached_tokens=1, num_external_cached_tokens=0
            ),
            num_cached_tokens=1,
        )

    def counts(self):
        """What the scheduler says of itself after a step."""
        return self.made(
            "SchedulerStats", num_running_reqs=1, num_waiting_reqs=0, kv_cache_usage=0.5
        )

    def finished(self):
        """What a step's statistics say of the request."""
        stats = self.made(
            "FinishedRequestStats",
            request_id="a",
            queued_time=1e-8,
            prefill_time=1e-8,
            decode_time=0.0,
            num_prompt_tokens=2,
            num_generation_tokens=1,
            num_cached_tokens=1,
        )
        return self.made("IterationStats", finished_requests=[stats])


def serve(monkeypatch, vllm):
    """A request of that vLLM, and what the stat logger hears after it."""
    metadata = SimpleNamespace(request_id="a")
    http = Http(request_metadata=metadata)
    monkeypatch.setattr(join_module, "_now", lambda: http.fake.now)
    module = load(monkeypatch, AggregateStatLoggerBase=object)
    config = SimpleNamespace(model_config=SimpleNamespace(served_model_name="m"))
    logger = module.LedgerStatLogger(config, [0])
    with http:
        state = SimpleNamespace(engine_client=vllm.engine)
        logger.meet({"app": SimpleNamespace(state=state)})
        now = http.fake.now
        http.fake.advance(100)
        vllm.live(now)
        if (vllm.lost, vllm.changed) == (("StatLoggerBase", "record"), True):
            logger.record(renamed=vllm.counts(), engine_idx=0)
        else:
            logger.record(vllm.counts(), vllm.finished(), engine_idx=0)
    return logger._join, http


def methods(vllm):
    """Which of vLLM's own methods ran, and how often."""
    has = vars(vllm.processor)
    return ["added"] * ("add_request" in has) + ["processed"] * 2 * ("process_outputs" in has)


@pytest.mark.parametrize(("lost", "how"), changes(EVENTS))
def test_without_a_name_of_the_events_the_tier_is_lower(monkeypatch, lost, how):
    """The next tier serves, once the first request has shown what is missing."""
    vllm = Vllm(lost, how)
    join, _ = serve(monkeypatch, vllm)

    assert join.tier == STATS_SWEEP
    assert vllm.heard == methods(vllm)
    assert faults.internal.total() <= 1


@pytest.mark.parametrize(("lost", "how"), changes(FACTS))
def test_without_a_name_of_a_fact_the_fact_is_missing(monkeypatch, lost, how):
    """The tier is the best, and so are the stamps."""
    vllm = Vllm(lost, how)
    join, http = serve(monkeypatch, vllm)

    assert join.tier == ENGINE_EVENTS
    assert (http.call.queued > 0, http.call.first_token > 0) == (True, True)
    assert vllm.heard == methods(vllm)
    assert faults.internal.total() <= 1


@pytest.mark.parametrize(("lost", "how"), changes(SWEEP + FINISHED))
@pytest.mark.parametrize("tier", [STATS_SWEEP, FINISHED_STATS])
def test_without_a_name_of_a_lower_tier_nothing_fails(monkeypatch, tier, lost, how):
    """What it cannot read it leaves out; vLLM's statistics go on."""
    monkeypatch.setattr(join_module, "tier_of", lambda *_args, **_more: tier)
    vllm = Vllm(lost, how)
    join, _ = serve(monkeypatch, vllm)

    assert join.tier == tier
    assert vllm.heard == methods(vllm)


SCHEDULING = [s for s in (*TELLS, *TRANSFERS) if isinstance(s, Field)]
STRIPPED = ("Request", "SchedulerOutput", "NewRequestData", "EngineCoreOutputs")


def _without(owner, made, lost):
    if lost.owner != owner:
        return made
    kept = {n: getattr(made, n) for n in dir(made) if not n.startswith("_") and n != lost.name}
    return SimpleNamespace(**kept)


class Stripped(Scheduler):
    """vLLM's scheduler in which one name is lost."""

    lost = None

    def schedule(self):
        """A step."""
        step = super().schedule()
        step.scheduled_new_reqs = [
            _without("NewRequestData", new, self.lost) for new in step.scheduled_new_reqs
        ]
        self.whole = step
        return _without("SchedulerOutput", step, self.lost)

    def update_from_output(self, step, token):
        """Outputs."""
        outputs = super().update_from_output(self.whole, token)
        return {
            client: _without("EngineCoreOutputs", own, self.lost) for client, own in outputs.items()
        }


@pytest.mark.parametrize(
    "lost",
    [pytest.param(s, id=str(s)) for s in SCHEDULING if s.owner in STRIPPED],
)
def test_without_a_name_of_the_scheduler_vllm_schedules_as_ever(lost):
    """Every request gets its tokens; at most one fault, and nothing told after it."""
    teller = Teller(
        SimpleNamespace,
        lambda outputs: SimpleNamespace(outputs=outputs, timestamp=0),
        loading=LOADING,
    )
    scheduler = telling(type("Lost", (Stripped,), {"lost": lost}), teller)()
    scheduler.connector = object()
    kept = scheduler.requests
    for number in range(3):
        request = Request(f"a-{number}", num_prompt_tokens=6)
        stripped = _without("Request", request, lost)
        kept[request.request_id] = request
        scheduler._tell(lambda tell, stripped=stripped: tell.added(stripped))
    for _ in range(3):
        scheduler.update_from_output(scheduler.schedule(), 7)

    assert [request.num_output_tokens for request in kept.values()] == [2, 2, 2]
    assert faults.internal.total() <= 1
