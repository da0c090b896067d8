"""Records a finished request into the instruments: what is sampled when, under which labels."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any, Final

from prometheus_client.samples import Exemplar

from llm_trace import semconv as s
from llm_trace.core import engines, faults
from llm_trace.core.record import ChunkGaps, RequestRecord
from llm_trace.observers.metrics import Instruments

MAX_LEARNED_MODELS: Final = 32
MAX_MODEL_LENGTH: Final = 256
MAX_ERROR_TYPES: Final = 64
OTHER_ERROR: Final = "_OTHER"
"""OpenTelemetry's fallback value of `error.type`."""

_COUNTED_TTFT: Final = frozenset({"ok", "truncated"})

Mark = tuple[dict[str, str], float] | None
"""Labels and Unix seconds of a request's exemplars; None where it has no trace."""
Base = tuple[str, str, str]


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
        self._phases = frozenset(s.PHASES) | frozenset(phases)
        self._expect = expect
        self._children: dict[tuple[Any, ...], Any] = {}

    def observe(self, record: RequestRecord) -> None:
        """Record `record`; a request that is no generation has no metrics."""
        if record.operation is None:
            return
        base = (record.operation, record.provider, self._model(record))
        exemplar = _exemplar(record)
        self._request(record, base, exemplar)
        self._phase_durations(record, base, exemplar)
        if _wants_tokens(record):
            self._first_token(record, base, exemplar)
        self._tokens(record, base, exemplar)

    # --- labels -------------------------------------------------------------------------------

    def _child(self, metric: s.Metric, base: Base, *rest: str) -> Any:
        key = (metric.name, base, rest)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = self._instruments.child(metric, (*base, *rest))
        return child

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

    # --- what is sampled ----------------------------------------------------------------------

    def _request(self, record: RequestRecord, base: Base, exemplar: Mark) -> None:
        last = self._phase(record.last_phase)
        self._child(s.REQUESTS, base, record.outcome, last).inc()
        duration = self._child(s.REQUEST_DURATION, base, self._error_type(record))
        observe(duration, record.duration / 1e9, exemplar)

    def _phase_durations(self, record: RequestRecord, base: Base, exemplar: Mark) -> None:
        for phase, ns in self._labelled(record.phases).items():
            state = record.start_state if phase == s.PREFILL else ""
            observe(self._child(s.PHASE_DURATION, base, phase, state), ns / 1e9, exemplar)

    def _labelled(self, durations: Mapping[str, int]) -> Mapping[str, int]:
        if durations.keys() <= self._phases:
            return durations
        labelled: dict[str, int] = {}
        for phase, ns in durations.items():
            name = self._phase(phase)
            labelled[name] = labelled.get(name, 0) + ns
        return labelled

    def _first_token(self, record: RequestRecord, base: Base, exemplar: Mark) -> None:
        ttft = record.ttft
        waited = record.duration if ttft is None else ttft
        observe(self._child(s.TTFT_OR_END, base), waited / 1e9, exemplar)
        if ttft is None or record.outcome not in _COUNTED_TTFT:
            return
        seconds = ttft / 1e9
        first = self._child(s.TIME_TO_FIRST_TOKEN, base, record.start_state)
        observe(first, seconds, exemplar)
        if self._expect is not None and (expected := self._expect(record)) is not None:
            child = self._child(s.EXPECTED_TIME_TO_FIRST_TOKEN, base, record.start_state)
            observe(child, expected, exemplar)
        band = s.TTFT_BAND_LABELS[bisect_left(s.TTFT_BANDS, seconds)]
        self._child(s.TTFT_REQUESTS, base, band).inc()
        for phase, ns in self._labelled(record.ttft_phases).items():
            self._child(s.TTFT_PHASE, base, phase, band).inc(ns / 1e9)
        if record.first_answer:
            answer = (record.first_answer - record.received) / 1e9
            observe(self._child(s.TIME_TO_FIRST_ANSWER, base), answer, exemplar)

    def _tokens(self, record: RequestRecord, base: Base, exemplar: Mark) -> None:
        each = record.time_per_output_token
        if each is not None and record.outcome in _COUNTED_TTFT:
            observe(self._child(s.TIME_PER_OUTPUT_TOKEN, base), each / 1e9, exemplar)
        if record.gaps is not None:
            add_gaps(self._child(s.TIME_PER_OUTPUT_CHUNK, base), record.gaps)
        for metric, count in _USAGE:
            number = count(record)
            if number:
                self._child(metric, base).inc(number)


def _wants_tokens(record: RequestRecord) -> bool:
    """Whether the client waits for a first token: it asked for a stream, or got one."""
    asked = record.streamed or bool(record.request.get(s.REQUEST_STREAM))
    return asked and record.tokens_observable


def _exemplar(record: RequestRecord) -> Mark:
    identity = record.identity
    if identity is None or not identity.sampled:
        return None
    labels = {"trace_id": f"{identity.trace_id:032x}", "span_id": f"{identity.span_id:016x}"}
    return labels, (record.finished + record.wall_offset) / 1e9


def _wasted(record: RequestRecord) -> int | None:
    """Prompt tokens computed for nobody: the client left before the first token."""
    if record.outcome != "cancelled" or record.ttft is not None or record.visible is None:
        return None
    usage = record.visible.usage
    if not record.visible.first_token or usage.input_tokens is None:
        return None
    return usage.input_tokens - (usage.cached_tokens or 0)


_USAGE: Final[tuple[tuple[s.Metric, Callable[[RequestRecord], int | None]], ...]] = (
    (s.USAGE_INPUT, lambda record: record.usage.input_tokens),
    (s.USAGE_OUTPUT, lambda record: record.usage.output_tokens),
    (s.USAGE_CACHED, lambda record: record.usage.cached_tokens),
    (s.USAGE_WASTED, _wasted),
)


def observe(histogram: Any, value: float, exemplar: Mark) -> None:
    """`histogram.observe`, but for its checks of the exemplar's labels, which we made.

    They cost as much as all else together, thirteen times a request. Where a version keeps its
    buckets otherwise, the public call does it.
    """
    buckets = getattr(histogram, "_buckets", ())
    bounds = getattr(histogram, "_upper_bounds", ())
    if len(buckets) != len(bounds) or not buckets:
        histogram.observe(value, exemplar and exemplar[0])
        return
    bucket = buckets[bisect_left(bounds, value)]
    bucket.inc(1)
    histogram._sum.inc(value)  # noqa: SLF001 - as in `add_gaps`
    if exemplar is not None:
        labels, at = exemplar
        bucket.set_exemplar(Exemplar(labels, value, at))


def add_gaps(histogram: Any, gaps: ChunkGaps) -> None:
    """Add a request's counted gaps to `histogram` in one go.

    prometheus_client has no public call for it. Its children keep one value per bucket and one for
    the sum, in every mode; where a version does not, the gaps are refused and counted.
    """
    buckets = getattr(histogram, "_buckets", ())
    total = getattr(histogram, "_sum", None)
    if len(buckets) != len(gaps.counts) or total is None or not math.isfinite(gaps.total):
        faults.drop("chunk_gaps")
        return
    for bucket, number in zip(buckets, gaps.counts, strict=True):
        if number:
            bucket.inc(number)
    total.inc(gaps.total / 1e9)
