"""The accumulators of Prometheus as metrics over OTLP, on the SDK's own schedule."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from opentelemetry.sdk.metrics import Counter as CounterInstrument
from opentelemetry.sdk.metrics import Exemplar
from opentelemetry.sdk.metrics import Histogram as HistogramInstrument
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricsData,
    NumberDataPoint,
    PeriodicExportingMetricReader,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource

from llm_trace import semconv as s
from llm_trace.core.clock import SYSTEM
from llm_trace.observers.bridge import Distribution, Growth, Point, exemplar_ids, translate
from llm_trace.observers.sdk.origin import SCOPE

_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE
_DELTA: Final = AggregationTemporality.DELTA


def reader_of(
    exporter: MetricExporter, resource: Resource, families: Callable[[], Iterable[Any]]
) -> PeriodicExportingMetricReader:
    """A reader on the SDK's own schedule that exports what `families` gives.

    A reader asks its meter provider for the metrics; here the accumulators answer instead. They do
    so in this process alone: the SDK lets a reader go on in a forked one, where it would tell its
    parent's numbers, in its parent's name, as they were.
    """
    pid, collecting, told = os.getpid(), threading.Lock(), _Told(exporter)

    def collect(_reader: object, timeout_millis: float = 0) -> Any:  # noqa: ARG001
        if pid != os.getpid():
            return None
        with collecting:  # a flush may come while the reader's own thread exports
            metrics = told.now(families())
        scope = ScopeMetrics(SCOPE, metrics, s.SCHEMA_URL)
        return MetricsData([ResourceMetrics(resource, [scope], resource.schema_url)])

    reader = PeriodicExportingMetricReader(exporter)
    reader._set_collect_callback(collect)  # noqa: SLF001 - as MeterProvider does
    return reader


class _Told:
    """What one export after the other tells, in the temporality that the exporter prefers."""

    def __init__(self, exporter: MetricExporter) -> None:
        self._started = self._since = SYSTEM.wall_ns()
        self._growth = Growth()
        prefers = exporter._preferred_temporality or {}  # noqa: SLF001 - as the SDK's readers ask
        kinds = {"counter": CounterInstrument, "histogram": HistogramInstrument}
        self._by_growth = {k for k, of in kinds.items() if prefers.get(of) is _DELTA}

    def now(self, families: Iterable[Any]) -> list[Metric]:
        """The metrics as they are now, or as they grew since the last time."""
        now, metrics = max(SYSTEM.wall_ns(), self._since), []  # the clock may have been set back
        for metric, points in translate(families):
            if metric.kind not in self._by_growth:
                metrics.append(_metric(metric, points, self._started, now, _CUMULATIVE))
            elif grown := self._growth.of(metric, points, self._since / 1e9):
                metrics.append(_metric(metric, grown, self._since, now, _DELTA))
        self._since = now
        return metrics


def _metric(
    metric: s.Metric,
    points: Sequence[Point],
    started: int,
    now: int,
    temporality: AggregationTemporality,
) -> Metric:
    data: Any
    if metric.kind == "histogram":
        data_points: list[Any] = [_histogram_point(p, started, now) for p in points]
        data = Histogram(data_points, temporality)
    elif metric.kind == "gauge":
        data = Gauge([_number_point(p, started, now) for p in points])
    else:
        data_points = [_number_point(p, started, now) for p in points]
        monotonic = metric.kind == "counter"
        data = Sum(data_points, temporality, is_monotonic=monotonic)
    return Metric(metric.name, metric.help, metric.unit, data)


def _exemplars(point: Point) -> list[Exemplar]:
    made = []
    for exemplar in point.exemplars:
        trace_id, span_id = exemplar_ids(exemplar)
        at = round(float(exemplar.timestamp or 0) * 1e9)
        made.append(Exemplar({}, exemplar.value, at, span_id, trace_id))
    return made


def _number_point(point: Any, started: int, now: int) -> NumberDataPoint:
    return NumberDataPoint(point.attributes, started, now, point.value, _exemplars(point))


def _histogram_point(point: Any, started: int, now: int) -> HistogramDataPoint:
    assert isinstance(point, Distribution)  # noqa: S101 - the table pairs kinds and points
    return HistogramDataPoint(
        point.attributes,
        started,
        now,
        sum(point.counts),
        point.total,
        point.counts,
        point.bounds,
        min=None,  # type: ignore[arg-type]  # unknown over a life, and optional in OTLP
        max=None,  # type: ignore[arg-type]
        exemplars=_exemplars(point),
    )
