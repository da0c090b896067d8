"""Records a finished request into the instruments: what is sampled when, under which labels."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from llm_trace import semconv as s
from llm_trace.core import engines
from llm_trace.core.record import ChunkGaps, RequestRecord
from llm_trace.observers.metrics import Instruments
from llm_trace.observers.samples import Mark, Plan, Row

MAX_LEARNED_MODELS: Final = 32
MAX_MODEL_LENGTH: Final = 256
MAX_OPERATIONS: Final = 16
MAX_ERROR_TYPES: Final = 64
MAX_PLANS: Final = 1024
OTHER_ERROR: Final = "_OTHER"
"""OpenTelemetry's fallback value of `error.type`."""

_COUNTED_TTFT: Final = frozenset({"ok", "truncated"})


Found = TypeVar("Found")
Child = tuple[Any, ...]
"""A metric, and the labels of one of its accumulators after those of every request."""


class Kind(NamedTuple):
    """All that decides which samples a request leaves, and under which labels.

    Requests of one kind differ only in numbers, so where these go is looked up once for a kind.
    """

    base: tuple[str, str, str]
    """Operation, provider, model."""
    error_type: str
    outcome: str
    last_phase: str
    start_state: str
    phases: tuple[str, ...]
    ttft_phases: tuple[str, ...]
    band: str
    """The label of its TTFT's band; empty for one whose TTFT is not counted."""
    measured: tuple[bool, ...]
    """Which of `_MEASURED` it has."""
    used: tuple[bool, ...]
    """Which of `_USAGE` it has."""
    gapped: tuple[bool, ...]
    """Which of `_GAPS` it has."""
    is_expected: bool
    """Whether a benchmark says what its TTFT should be."""


class MetricsObserver:
    """Feeds every request metric of `semconv` from finished requests.

    Args:
        instruments: Where samples go.
        served_models: Models that may be labels; empty: those that answered, a bounded number.
        phases: Names of the app's phases that may be labels.
        expect: Seconds of TTFT that a benchmark lets us expect of a request, if there is one.
    """

    def __init__(
        self,
        instruments: Instruments,
        *,
        served_models: tuple[str, ...] = (),
        phases: tuple[str, ...] = (),
        expect: Callable[[RequestRecord], float | None] | None = None,
    ) -> None:
        self._instruments = instruments
        self._served = frozenset(served_models)
        self._learned: set[str] = set()
        self._error_types: set[str] = set()
        self._operations: set[str] = set()
        self._phases = frozenset(s.PHASES) | frozenset(phases)
        self._expect = expect
        self._plans: dict[Kind, Plan] = {}
        self._lag = instruments.child(s.EVENT_LOOP_LAG, ())

    def lagged(self, late: int) -> None:
        """Record how late a timer of an event loop ran, ns."""
        self._lag.observe(late / 1e9)

    def observe(self, record: RequestRecord) -> None:
        """Record `record`; a request that is no generation has no metrics."""
        if record.operation is None:
            return
        phases = self._labelled(record.phases)
        ttft = _counted_ttft(record)
        ttft_phases = {} if ttft is None else self._labelled(record.ttft_phases)
        measured = [measure(record) for _, measure in _MEASURED]
        used = [count(record) for _, count in _USAGE]
        gaps = [find(record) for _, find in _GAPS]
        expected = None if ttft is None or self._expect is None else self._expect(record)
        kind = Kind(
            self.base(record),
            self._error_type(record),
            record.outcome,
            self._phase(record.last_phase),
            record.start_state,
            tuple(phases),
            tuple(ttft_phases),
            "" if ttft is None else s.TTFT_BAND_LABELS[bisect_left(s.TTFT_BANDS, ttft / 1e9)],
            tuple([value is not None for value in measured]),
            tuple(map(bool, used)),
            tuple([found is not None for found in gaps]),
            expected is not None,
        )
        durations = [record.duration, *phases.values(), *[x for x in measured if x is not None]]
        counts = [1, *filter(None, used)]
        if ttft is not None:
            durations.append(ttft)
            counts.append(1)
        if expected is not None:
            durations.append(round(expected * 1e9))
        found = [each for each in gaps if each is not None]
        row = Row(durations, counts, list(ttft_phases.values()), found, _mark(record))
        self._instruments.samples.add(self._plans.get(kind) or self._make_plan(kind), row)

    def _make_plan(self, kind: Kind) -> Plan:
        """Where the columns of `observe` go, in its order."""
        instruments, base = self._instruments, kind.base
        durations: list[Child] = [(s.REQUEST_DURATION, kind.error_type)]
        for phase in kind.phases:
            state = kind.start_state if phase == s.PREFILL else ""
            durations.append((s.PHASE_DURATION, phase, state))
        durations += [(metric,) for metric, _ in _chosen(_MEASURED, kind.measured)]
        counts: list[Child] = [(s.REQUESTS, kind.outcome, kind.last_phase)]
        counts += [(metric,) for metric, _ in _chosen(_USAGE, kind.used)]
        if kind.band:
            self._lay_out_bands(kind)
            durations.append((s.TIME_TO_FIRST_TOKEN, kind.start_state))
            counts.append((s.TTFT_REQUESTS, kind.band))
        if kind.is_expected:
            durations.append((s.EXPECTED_TIME_TO_FIRST_TOKEN, kind.start_state))
        plan = Plan(
            [instruments.durations(metric, (*base, *labels)) for metric, *labels in durations],
            [instruments.child(metric, (*base, *labels)) for metric, *labels in counts],
            [instruments.child(s.TTFT_PHASE, (*base, p, kind.band)) for p in kind.ttft_phases],
            [instruments.child(metric, base) for metric, _ in _chosen(_GAPS, kind.gapped)],
        )
        if len(self._plans) >= MAX_PLANS:  # orders of phases are many; those in use come back
            self._plans.clear()
        self._plans[kind] = plan
        return plan

    def base(self, record: RequestRecord) -> tuple[str, str, str]:
        """The labels of every request metric: operation, provider and model."""
        return (self._operation(record.operation or ""), record.provider, self._model(record))

    def _lay_out_bands(self, kind: Kind) -> None:
        """Begin every band at zero as soon as one is reached.

        Prometheus sees no growth in the first sample of a series, and an incident is when the first
        requests reach a band.
        """
        for band in s.TTFT_BAND_LABELS:
            self._instruments.child(s.TTFT_REQUESTS, (*kind.base, band))
            for phase in kind.ttft_phases:
                self._instruments.child(s.TTFT_PHASE, (*kind.base, phase, band))

    # --- labels -------------------------------------------------------------------------------

    def _operation(self, operation: str) -> str:
        """The operation as a label: an app may give any, so their number is bound."""
        if operation in self._operations:
            return operation
        fits = len(operation) <= MAX_MODEL_LENGTH and operation.isprintable()
        if len(self._operations) >= MAX_OPERATIONS or not fits:
            return s.OTHER
        self._operations.add(operation)
        return operation

    def _model(self, record: RequestRecord) -> str:
        """The model as a label: only one that is served, so that no client can grow labels."""
        model = record.model
        if not model:
            return s.OTHER
        if self._served:
            return model if model in self._served else s.OTHER
        if model in self._learned or model in engines.served_models:
            return model
        answered = record.outcome == "ok" and bool(
            record.usage.output_tokens or record.ttft is not None
        )
        full = len(self._learned) >= MAX_LEARNED_MODELS or len(model) > MAX_MODEL_LENGTH
        if not answered or full or not model.isprintable():  # a lone surrogate breaks the scrape
            return s.OTHER
        self._learned.add(model)
        return model

    def _error_type(self, record: RequestRecord) -> str:
        kind = record.error_type
        if kind is None or kind in self._error_types:
            return kind or ""
        if len(self._error_types) >= MAX_ERROR_TYPES:
            return OTHER_ERROR
        self._error_types.add(kind)
        return kind

    def _phase(self, phase: str) -> str:
        return phase if phase in self._phases else s.OTHER

    def _labelled(self, durations: Mapping[str, int]) -> Mapping[str, int]:
        if durations.keys() <= self._phases:
            return durations
        labelled: dict[str, int] = {}
        for phase, ns in durations.items():
            name = self._phase(phase)
            labelled[name] = labelled.get(name, 0) + ns
        return labelled


def _chosen(rows: Sequence[Found], flags: Sequence[bool]) -> list[Found]:
    return [row for row, flag in zip(rows, flags, strict=True) if flag]


def _wants_tokens(record: RequestRecord) -> bool:
    """Whether the client waits for a first token: it asked for a stream, or got one."""
    if record.visible is not None and record.visible.leg == "prefill":
        return False  # its token goes to another engine, and no user waits for it
    asked = record.streamed or bool(record.request.get(s.REQUEST_STREAM))
    return asked and record.tokens_observable


def _counted_ttft(record: RequestRecord) -> int | None:
    """The TTFT of a request that succeeded, or was truncated after its first token."""
    counts = record.outcome in _COUNTED_TTFT and _wants_tokens(record)
    return record.ttft if counts else None


def _ttft_or_end(record: RequestRecord) -> int | None:
    if not _wants_tokens(record):
        return None
    return record.duration if record.ttft is None else record.ttft


def _first_answer(record: RequestRecord) -> int | None:
    if not record.first_answer or _counted_ttft(record) is None:
        return None
    return record.first_answer - record.received


def _each_token(record: RequestRecord) -> float | None:
    return record.time_per_output_token if record.outcome in _COUNTED_TTFT else None


def _first_token_held(record: RequestRecord) -> int | None:
    return (record.send_wait or None) if record.ttft is not None else None


def _mark(record: RequestRecord) -> Mark:
    identity = record.identity
    if identity is None or not identity.sampled:
        return None
    return identity, record.finished + record.wall_offset


Measure = tuple[s.Metric, Callable[[RequestRecord], float | None]]

_MEASURED: Final[tuple[Measure, ...]] = (
    (s.TTFT_OR_END, _ttft_or_end),
    (s.TIME_TO_FIRST_ANSWER, _first_answer),
    (s.TIME_PER_OUTPUT_TOKEN, _each_token),
    (s.EDGE_TIME, lambda record: record.edge),
    (s.TTFT_SEND_WAIT_TIME, _first_token_held),
    (s.SEND_WAIT_TIME, lambda record: record.send_wait_total or None),
)
"""Histograms with the labels of every request, and the ns of one; None leaves no sample."""

_USAGE: Final[tuple[tuple[s.Metric, Callable[[RequestRecord], int | None]], ...]] = (
    (s.USAGE_INPUT, lambda record: record.usage.input_tokens),
    (s.USAGE_OUTPUT, lambda record: record.usage.output_tokens),
    (s.USAGE_CACHED, lambda record: record.usage.cached_tokens),
    (s.USAGE_WASTED, lambda record: record.wasted_tokens),
)
"""Counters with the labels of every request, and what one adds; nothing is added for None or 0."""

_GAPS: Final[tuple[tuple[s.Metric, Callable[[RequestRecord], ChunkGaps | None]], ...]] = (
    (s.TIME_PER_OUTPUT_CHUNK, lambda record: record.gaps),
    (s.INTER_TOKEN_LATENCY, lambda record: record.token_gaps),
)
"""Histograms of times between one thing and the next, and what one request counted."""
