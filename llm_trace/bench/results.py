"""The numbers of a run: each cell described, and the line through the prompt lengths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, NamedTuple

from llm_trace.bench.fit import Fit, fit
from llm_trace.bench.plan import Cell, Plan
from llm_trace.bench.reuse import Reuse, judge, usage_tells
from llm_trace.bench.sample import Sample
from llm_trace.bench.stats import Stats, describe
from llm_trace.bench.sweep import Measured, Run
from llm_trace.bench.theil import Point

StartState = Literal["cold", "loaded", "unknown"]


class Phases(NamedTuple):
    """Where the time to first token went, and who says so."""

    source: str
    """`ledger` (in the answers), `llm_trace` or `vllm` (their counters)."""
    mean: Mapping[str, float]
    """Seconds a request."""


class Rates(NamedTuple):
    """What the server did a second, over the cell."""

    requests: float
    output_tokens: float | None
    goodput: float | None
    """Requests that met every objective; None without objectives."""


@dataclass(frozen=True, slots=True)
class CellResult:
    """One cell in numbers; seconds."""

    cell: Cell
    tokens: float | None
    """Mean prompt tokens, as the server counted them."""
    ok: int
    failed: int
    cancelled: int
    reasons: Mapping[str, int]
    """Why requests failed or were cancelled."""
    ttft: Stats | None
    server_ttft: Stats | None
    """The same by the server's own ledger: without the way there and back."""
    outside: Stats | None
    """What is left of each TTFT: the way there and back, and the client itself."""
    tpot: Stats | None
    duration: Stats | None
    rates: Rates
    good: float | None
    """Share of all requests that met every objective."""
    reuse: Reuse
    phases: Phases | None


@dataclass(frozen=True, slots=True)
class Results:
    """One run in numbers."""

    plan: Plan
    ruler: str
    start_state: StartState
    """What the first request met, as far as the server's counters tell."""
    first: Sample | None
    warm_up: tuple[Sample, ...]
    cells: tuple[CellResult, ...]
    prefill: Fit | None
    stopped: str | None

    @property
    def answered(self) -> bool:
        """Whether anything was measured at all."""
        return any(cell.ok for cell in self.cells)


def results(run: Run) -> Results:
    """Describe `run`."""
    samples = [sample for measured in run.measured for sample in measured.samples]
    tells = usage_tells(samples)
    cells = tuple(_cell(one, run.plan, tells=tells) for one in run.measured if one.samples)
    return Results(
        plan=run.plan,
        ruler=run.ruler,
        start_state={True: "loaded", False: "cold", None: "unknown"}[run.served_before],  # type: ignore[arg-type]
        first=run.first,
        warm_up=tuple(run.warm_up),
        cells=cells,
        prefill=fit(_prefill_points(run, cells)),
        stopped=run.stopped,
    )


def _cell(measured: Measured, plan: Plan, *, tells: bool) -> CellResult:
    samples = measured.samples
    good = [sample for sample in samples if sample.outcome == "ok"]
    outcomes = Counter(sample.outcome for sample in samples)
    met = [sample for sample in good if meets(sample, plan.objectives)]
    seconds = measured.seconds
    return CellResult(
        cell=measured.cell,
        tokens=_mean([sample.prompt_tokens for sample in good]),
        ok=outcomes["ok"],
        failed=outcomes["failed"],
        cancelled=outcomes["cancelled"],
        reasons=dict(Counter(sample.reason or "" for sample in samples if sample.outcome != "ok")),
        ttft=_described(good, lambda sample: sample.ttft),
        server_ttft=_described(good, lambda sample: sample.server_ttft),
        outside=_described(good, lambda sample: sample.outside),
        tpot=_described(good, lambda sample: sample.tpot),
        duration=_described(good, lambda sample: sample.duration),
        rates=Rates(
            len(good) / seconds,
            _rate([sample.output_tokens for sample in good], seconds),
            len(met) / seconds if plan.objectives else None,
        ),
        good=len(met) / len(samples) if plan.objectives else None,
        reuse=judge(measured, usage_tells=tells),
        phases=_phases(measured, good),
    )


def meets(sample: Sample, objectives: Mapping[str, float]) -> bool:
    """Whether an answered request met every objective; an unknown value did not."""
    taken = {name: getattr(sample, name) for name in objectives}
    return all(value is not None and value <= objectives[name] for name, value in taken.items())


def _described(samples: Sequence[Sample], value: Callable[[Sample], float | None]) -> Stats | None:
    return describe([known for known in map(value, samples) if known is not None])


def _mean(values: Sequence[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _rate(values: Sequence[int | None], seconds: float) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / seconds if known else None


def _phases(measured: Measured, good: Sequence[Sample]) -> Phases | None:
    """The ledgers that came with the answers, else the growth of the server's counters."""
    ledgers = [sample.phases for sample in good if sample.phases is not None]
    if ledgers and len(ledgers) == len(good):
        names = list(dict.fromkeys(name for ledger in ledgers for name in ledger))
        return Phases("ledger", {n: fmean(ledger.get(n, 0.0) for ledger in ledgers) for n in names})
    counted = measured.counted
    if counted is None or counted.requests != len(measured.samples):
        return None  # somebody else's requests are in the counters, too
    means = counted.mean_phases
    return Phases(*means) if means else None


def _prefill_points(run: Run, cells: Sequence[CellResult]) -> list[list[Point]]:
    """Uncached tokens and TTFT of new prefixes, where the fewest requests were in flight."""
    fewest = min(run.plan.concurrencies)
    refuted = {one.cell for one in cells if one.reuse.verdict == "refuted"}
    chosen = (
        one
        for one in run.measured
        if one.cell.concurrency == fewest and one.cell.prefix == "new" and one.cell not in refuted
    )
    return [[point for point in map(_point, one.samples) if point] for one in chosen]


def _point(sample: Sample) -> Point | None:
    if sample.outcome != "ok" or sample.ttft is None or sample.prompt_tokens is None:
        return None
    return float(sample.prompt_tokens - (sample.cached_tokens or 0)), sample.ttft
