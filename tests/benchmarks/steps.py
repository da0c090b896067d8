"""What a step of vLLM's engine costs more: in the API process, and in EngineCore.

A step that only decodes, as nearly all are: every running request gets one token. vLLM's own
methods do nothing here, so what is measured is ours alone: the wrapped output processor and the
stat logger's report in the one, the three methods of our scheduler in the other.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from llm_trace import context
from llm_trace.core.timeline import Timeline
from llm_trace_vllm.join import Join
from llm_trace_vllm.scheduling import telling
from llm_trace_vllm.teller import Teller

RUNNING: Final = (1, 32, 256)
ROUNDS: Final = 15
STEPS: Final = 4_000
"""Of one request; more requests take fewer steps, for about the same time."""


class Cost(NamedTuple):
    """Microseconds that a step costs more."""

    api: float
    """In the API process, on its event loop."""
    core: float
    """In EngineCore, where `--scheduler-cls llm_trace_vllm.scheduler` is set."""


@dataclass(slots=True)
class _Output:
    """As much of an engine output as is read; slots, as vLLM's structs are as quick."""

    request_id: str
    new_token_ids: list[int]
    events: list[Any] | None = None
    finish_reason: Any = None
    prefill_stats: Any = None


class _Processor:
    def __init__(self) -> None:
        self.request_states: dict[str, object] = {}

    def add_request(self, *_args: Any) -> None:
        """vLLM keeps the request."""

    def process_outputs(self, *_args: Any) -> None:
        """vLLM hands tokens on."""


class _Scheduler:
    """Gives every request a token in each step."""

    def __init__(self, requests: dict[str, Any]) -> None:
        self.requests = requests
        self._step = SimpleNamespace(
            num_scheduled_tokens=dict.fromkeys(requests, 1),
            finished_req_ids=set(),
            scheduled_new_reqs=[],
        )
        self._outputs: dict[int, Any] = {}

    def add_request(self, _request: Any) -> None:
        """vLLM queues the request."""

    def schedule(self) -> Any:
        """vLLM decides."""
        return self._step

    def update_from_output(self, _step: Any, _result: Any) -> dict[int, Any]:
        """vLLM makes outputs."""
        return self._outputs


class Plan(NamedTuple):
    """How much is measured."""

    rounds: int
    steps: int


def measure(rounds: int = ROUNDS, steps: int = STEPS) -> dict[int, Cost]:
    """The cost by how many requests run."""
    plans = {running: Plan(rounds, max(50, steps // running)) for running in RUNNING}
    return {running: Cost(_api(running, p), _core(running, p)) for running, p in plans.items()}


def _api(running: int, plan: Plan) -> float:
    ids = [f"request-{number}" for number in range(running)]
    bare, joined = _Processor(), _Processor()
    join = Join(SimpleNamespace(output_processor=joined))
    timelines = [_hand_off(joined, request_id) for request_id in ids]
    stats = SimpleNamespace(num_running_reqs=running, num_waiting_reqs=0, kv_cache_usage=0.5)
    joined.process_outputs([_first(request_id) for request_id in ids], time.monotonic(), None)
    outputs = [_Output(request_id, [7]) for request_id in ids]

    def one(processor: _Processor, report: Callable[[Any, int], None]) -> Callable[[], None]:
        def step() -> None:
            processor.process_outputs(outputs, time.monotonic(), None)
            report(stats, 0)

        return step

    cost = _added(one(bare, _nothing), one(joined, join.reported), plan)
    ticks = 1 + plan.rounds * plan.steps
    assert all(timeline.calls[0].generated == ticks for timeline in timelines)
    return cost


def _hand_off(processor: _Processor, request_id: str) -> Timeline:
    timeline = Timeline()
    token = context.enter(timeline)
    processor.add_request(SimpleNamespace(request_id=request_id, prompt_token_ids=[1, 2]))
    processor.request_states[request_id] = timeline
    context.leave(token)
    return timeline


def _first(request_id: str) -> _Output:
    now = time.monotonic()
    events = [SimpleNamespace(type=kind, timestamp=now) for kind in (1, 2)]
    return _Output(request_id, [7], events)


def _nothing(_stats: Any, _rank: int) -> None:
    """Bare vLLM has no logger of ours."""


def _core(running: int, plan: Plan) -> float:
    requests = {f"request-{number}": _running() for number in range(running)}
    ours = telling(_Scheduler, Teller(_nothing_made, _nothing_made))(requests)
    ours.add_request(SimpleNamespace(request_id="of a session"))

    def one(scheduler: _Scheduler) -> Callable[[], None]:
        def step() -> None:
            scheduler.update_from_output(scheduler.schedule(), None)

        return step

    return _added(one(_Scheduler(requests)), one(ours), plan)


def _running() -> Any:
    return SimpleNamespace(num_output_tokens=9)


def _nothing_made(_content: Any) -> Any:
    raise AssertionError("a step that only decodes has no news")


def _added(bare: Callable[[], None], ours: Callable[[], None], plan: Plan) -> float:
    """Microseconds that `ours` takes more: the median over rounds in which both take turns."""
    gc.collect()
    differences = [
        _cpu_ns(ours, plan.steps) - _cpu_ns(bare, plan.steps) for _ in range(plan.rounds)
    ]
    return median(differences) / plan.steps / 1e3


def _cpu_ns(step: Callable[[], None], times: int) -> int:
    before = time.thread_time_ns()
    for _ in range(times):
        step()
    return time.thread_time_ns() - before
