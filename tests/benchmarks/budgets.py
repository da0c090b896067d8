"""The budgets of the middleware, and whether measurements keep them.

Ratios within one run on one machine, where there is a peer to compare with. What needs a socket
(throughput of a saturated server) is measured by `saturated`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from tests.benchmarks.line import Line
from tests.benchmarks.steps import RUNNING, Cost


class Results(NamedTuple):
    """What one run measured."""

    added: Mapping[str, Line]
    """By contender, ns added to the bare app: to a request, and to each of its token chunks."""
    memory: Mapping[str, float]
    """By contender, bytes added to the bare app by a request in flight."""
    steps: Mapping[int, Cost] = {}
    """By requests that run in it, what is added to a step of vLLM's engine; may be missing."""


class Budget(NamedTuple):
    """One row of the table of budgets."""

    what: str
    unit: str
    must: float
    aim: float
    value: Callable[[Results], float]


class Verdict(NamedTuple):
    """A budget and what was measured of it."""

    budget: Budget
    value: float

    @property
    def kept(self) -> bool:
        """Whether the must is met."""
        return self.value <= self.budget.must


def _fixed(key: str) -> Callable[[Results], float]:
    return lambda results: results.added[key].fixed / 1e3


def _ratio(key: str, peer: str) -> Callable[[Results], float]:
    return lambda results: results.added[key].fixed / results.added[peer].fixed


def _chunk_ratio(results: Results) -> float:
    return results.added["full"].each / results.added["otel_one_span"].each


CHUNK: Final = (0.60 / 0.61, 0.30 / 0.61)
"""The contract's microseconds for a chunk, where OpenTelemetry's one span took 0.61: budgets are
ratios in one run, since machines differ more than middlewares do."""

BUDGETS: Final = (
    Budget("disabled by instrument(), per request", "us", 1.0, 0.0, _fixed("disabled")),
    Budget("disabled middleware, per request", "us", 1.0, 0.5, _fixed("disabled_middleware")),
    Budget("per token chunk", "x OpenTelemetry's one span", *CHUNK, _chunk_ratio),
    Budget(
        "spans and metrics, per request",
        "x OpenTelemetry's one span",
        *(1.0, 0.5),
        _ratio("full", "otel_one_span"),
    ),
    Budget(
        "metrics only, per request",
        "x prometheus-fastapi-instrumentator",
        *(1.0, 0.5),
        _ratio("metrics_only", "prometheus"),
    ),
    Budget("memory of a request in flight", "KiB", 4.0, 4.0, lambda r: r.memory["full"] / 1024),
)


def _step(running: int) -> Budget:
    must = 10.0 + 0.2 * running
    what = f"engine step, {running} running, dearer process"
    return Budget(what, "us", must, must, lambda results: max(results.steps[running]))


STEP_BUDGETS: Final = tuple(_step(running) for running in RUNNING)


def judge(results: Results) -> list[Verdict]:
    """Every budget beside what was measured."""
    budgets = BUDGETS + (STEP_BUDGETS if results.steps else ())
    return [Verdict(budget, budget.value(results)) for budget in budgets]
