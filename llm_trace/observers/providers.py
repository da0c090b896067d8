"""The OpenTelemetry SDK, in one place: the provider that spans go to, and the OTLP exporters.

A provider that the app has set is used as it is. Otherwise, when an endpoint is configured, spans
go through a private provider: nothing global is touched. Spans arrive here finished, so no span
object lives while a request runs.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from time import sleep
from typing import Any, Final
from uuid import uuid4

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.context import Context
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
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)

from llm_trace import semconv as s
from llm_trace._version import __version__
from llm_trace.core import faults
from llm_trace.core.clock import SYSTEM
from llm_trace.observers import rejected
from llm_trace.observers.bridge import Distribution, Growth, Point, exemplar_ids, translate
from llm_trace.observers.endpoint import Endpoint
from llm_trace.observers.sink import FinishedSpan, Trace
from llm_trace.observers.values import Value
from llm_trace.observers.variables import Signal

SCOPE: Final = InstrumentationScope(s.SCOPE, __version__, s.SCHEMA_URL)

_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE
_DELTA: Final = AggregationTemporality.DELTA
_UNSET: Final = Status(StatusCode.UNSET)
_ERROR: Final = Status(StatusCode.ERROR)
_QUIET_SECONDS: Final = 60
_GRPC_LOGGER: Final = "opentelemetry.exporter.otlp.proto.grpc.exporter"
"""Where both gRPC exporters log."""
_TAKE_ALL: Final = ("AlwaysOnSampler", "ParentBased{root:AlwaysOnSampler,")
"""How samplers that take every trace that begins with them describe themselves."""
_SPANS_A_TRACE: Final = 8
"""By which the SDK's batch size, in spans, becomes one in traces; exports keep to the former."""
_ENGINES_OWN: Final = "vllm.instrumenting_module_name"
"""Resource key of the provider that vLLM sets for itself; request spans do not belong there."""


class ProviderSink:
    """A span sink over an SDK provider.

    Uses the provider's sampler, ids and resource, and hands finished spans to its processors:
    the one thing that the SDK has no public call for.
    """

    def __init__(self, provider: Any) -> None:
        self._provider = provider
        self._limits = _Limits(provider)
        self.new_trace_id: Callable[[], int] = provider.id_generator.generate_trace_id
        self.new_span_id: Callable[[], int] = provider.id_generator.generate_span_id
        describe = getattr(provider.sampler, "get_description", str)
        self.takes_all = describe().startswith(_TAKE_ALL)

    def sample(
        self, parent: Context | None, trace_id: int, name: str, kind: SpanKind
    ) -> tuple[bool, TraceState | None]:
        """Ask the provider's sampler."""
        result = self._provider.sampler.should_sample(parent, trace_id, name, kind)
        return result.decision.is_sampled(), result.trace_state

    def emit(self, trace: Trace) -> None:
        """Hand the spans to the provider's processors."""
        on_end = self._provider._active_span_processor.on_end  # noqa: SLF001 - see the class
        resource = self._provider.resource
        for span in trace:
            on_end(_readable(span, resource, self._limits))


class _Limits:
    """What a provider's spans may hold of attributes: by OTEL_SPAN_ATTRIBUTE_* or by its app."""

    def __init__(self, provider: Any) -> None:
        limits = getattr(provider, "_span_limits", None)
        self._most: int | None = getattr(limits, "max_span_attributes", None)
        self._longest: int | None = getattr(limits, "max_span_attribute_length", None)

    def fitted(self, attributes: Mapping[str, Value]) -> Mapping[str, Any]:
        """`attributes` as the SDK would keep them; as they are where they fit, as nearly always."""
        if self._longest is None and (self._most is None or len(attributes) <= self._most):
            return attributes
        return BoundedAttributes(self._most, attributes, max_value_len=self._longest)


def _readable(span: FinishedSpan, resource: Resource, limits: _Limits) -> ReadableSpan:
    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=resource,
        attributes=limits.fitted(span.attributes),
        kind=span.kind,
        status=_ERROR if span.failed else _UNSET,
        start_time=span.start,
        end_time=span.end,
        instrumentation_scope=SCOPE,
    )


def service_name() -> str:
    """What this process is called by, as its exported spans have it."""
    return str(Resource.create({}).attributes.get(SERVICE_NAME, ""))


def _resource() -> Resource:
    """The resource of this process, told apart from others of its service by every SDK."""
    made = Resource.create({})
    if SERVICE_INSTANCE_ID in made.attributes:
        return made
    return made.merge(Resource({SERVICE_INSTANCE_ID: _instance(os.getpid())}))


@lru_cache(maxsize=1)
def _instance(pid: int) -> str:  # noqa: ARG001 - another process is another instance
    return str(uuid4())


def sink_of(provider: Any) -> ProviderSink | None:
    """A sink over `provider`, or None where it is no SDK provider, or the engine's own."""
    parts = ("sampler", "id_generator", "resource", "_active_span_processor")
    if not all(hasattr(provider, part) for part in parts):
        return None
    return None if _ENGINES_OWN in provider.resource.attributes else ProviderSink(provider)


class _Listener(SpanProcessor):
    """Tells of spans as they start and end."""

    def __init__(self, started: Callable[[Any], None], ended: Callable[[Any], None]) -> None:
        self._started = started
        self._ended = ended

    def on_start(self, span: Any, parent_context: Context | None = None) -> None:  # noqa: ARG002
        self._started(span)

    def on_end(self, span: ReadableSpan) -> None:
        self._ended(span)


def listen(provider: Any, started: Callable[[Any], None], ended: Callable[[Any], None]) -> None:
    """Hear of every span that `provider` records, from now on; of no SDK provider, nothing."""
    if hasattr(provider, "add_span_processor"):
        provider.add_span_processor(_Listener(started, ended))


class _Queued:
    """A trace in the queue, which asks of what it holds only whether it is sampled: ours are."""

    __slots__ = ("trace",)
    context: Final = SpanContext(1, 1, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    def __init__(self, trace: Trace) -> None:
        self.trace = trace


class _TraceExporter(SpanExporter):
    """Makes the spans of queued traces, sends them, and counts what could not be sent."""

    def __init__(self, exporter: SpanExporter, provider: TracerProvider) -> None:
        self._exporter = exporter
        self._resource = provider.resource
        self._limits = _Limits(provider)
        self.most = BatchSpanProcessor._default_max_export_batch_size()  # type: ignore[no-untyped-call]  # noqa: SLF001
        """Spans of one export."""
        self.done = 0
        """Spans that left the queue."""

    def export(self, spans: Sequence[Any]) -> SpanExportResult:
        """Send the spans of `spans`, which are queued traces.

        Raises:
            Exception: What the exporter raised last; all others were tried all the same.
        """
        self.done += sum(len(queued.trace) for queued in spans)
        made = [span for queued in spans for span in self._made(queued.trace)]
        raised: Exception | None = None
        for first in range(0, len(made), self.most):
            try:
                self._send(made[first : first + self.most])
            except Exception as error:  # noqa: BLE001 - it is raised again, and logged by the SDK
                raised = error
        if raised is not None:
            raise raised
        return SpanExportResult.SUCCESS

    def _made(self, trace: Trace) -> list[ReadableSpan]:
        sleep(0)  # the event loop goes first: else it waits 5 ms, the interpreter's switch interval
        try:
            return [_readable(span, self._resource, self._limits) for span in trace]
        except Exception as error:  # noqa: BLE001 - a trace that cannot be made costs no other
            faults.contain("SpanObserver", error)
            return []

    def _send(self, spans: Sequence[ReadableSpan]) -> None:
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            if result is not SpanExportResult.SUCCESS:
                faults.spans["export_failed"] += len(spans)

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


class _TraceQueue(BatchSpanProcessor):
    """A batch processor of whole traces; counts and refuses what it has no room for.

    One item a request, whose spans are made in the background: that is cheaper for the request, and
    a record takes less memory than its spans. Room is counted in spans all the same.
    """

    def __init__(self, exporter: _TraceExporter, room: int | None = None) -> None:
        self._exporter = exporter
        self._taken = 0
        self._room: int = room or BatchSpanProcessor._default_max_queue_size()  # type: ignore[no-untyped-call]  # noqa: SLF001
        batch = max(1, min(exporter.most // _SPANS_A_TRACE, self._room))
        super().__init__(exporter, max_queue_size=self._room, max_export_batch_size=batch)

    def take(self, trace: Trace) -> None:
        """Queue a trace, or refuse it."""
        number = len(trace)
        if self._taken + number - self._exporter.done > self._room:
            faults.spans["queue_full"] += number
            return
        self._taken += number
        self.on_end(_Queued(trace))  # type: ignore[arg-type]


class QueueSink(ProviderSink):
    """The private provider's sink: traces go into the queue as they are."""

    def __init__(self, provider: TracerProvider, queue: _TraceQueue) -> None:
        super().__init__(provider)
        self.emit = queue.take  # type: ignore[method-assign]
        self.flush = queue.force_flush
        """Sends what is queued, however long that takes."""


def _bridge(
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


class Pipeline:
    """Private exporters, and their end within a bounded time."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._flushes: list[Callable[[], object]] = []
        self._shutdowns: list[Callable[[], object]] = []
        self._pid = os.getpid()
        atexit.register(self.shutdown)

    def add_spans(self, endpoint: Endpoint) -> ProviderSink:
        """Export spans to `endpoint`; the private sink that takes them."""
        _announce("spans", endpoint)
        return self.add_exporter(_span_exporter(endpoint))

    def add_exporter(self, exporter: SpanExporter, room: int | None = None) -> QueueSink:
        """Export spans by `exporter`, of which `room` may wait: OTEL_BSP_MAX_QUEUE_SIZE if None."""
        provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        queue = _TraceQueue(_TraceExporter(exporter, provider), room)
        self._flushes.append(queue.force_flush)
        self._shutdowns.append(queue.shutdown)
        return QueueSink(provider, queue)

    def add_metrics(self, endpoint: Endpoint, families: Callable[[], Iterable[Any]]) -> None:
        """Export what `families` gives to `endpoint`, every OTEL_METRIC_EXPORT_INTERVAL."""
        reader = _bridge(_metric_exporter(endpoint), _resource(), families)
        self._flushes.append(reader.collect)
        self._shutdowns.append(reader.shutdown)
        _announce("metrics", endpoint)

    def flush(self) -> None:
        """Send what is queued, within the time limit."""
        _within(self._timeout, self._flushes)

    def shutdown(self) -> None:
        """Send what is queued and stop, within the time limit, even while a retry sleeps."""
        atexit.unregister(self.shutdown)
        if self._pid == os.getpid():  # a forked child has no part in what its parent queued
            _within(self._timeout, self._shutdowns)


def _within(seconds: float, calls: Iterable[Callable[[], object]]) -> None:
    """Run `calls` side by side and wait at most `seconds` for all of them."""
    threads = [threading.Thread(target=_quietly, args=(c,), daemon=True) for c in calls]
    for thread in threads:
        thread.start()
    deadline = SYSTEM.monotonic_ns() + round(seconds * 1e9)
    for thread in threads:
        thread.join(max(0, deadline - SYSTEM.monotonic_ns()) / 1e9)


def _quietly(call: Callable[[], object]) -> None:
    try:
        call()
    except Exception:  # noqa: BLE001 - a collector that is down must not make the exit fail
        faults.internal["shutdown"] += 1


def load(endpoint: Endpoint) -> None:
    """Import what exports to `endpoint`, which takes long; nothing is opened.

    Raises:
        ValueError: A variable of the SDK has a limit of spans that is none.
    """
    for signal in ("trace", "metric"):
        _exporter_module(endpoint, signal)
    SpanLimits()


def rehearse(signal: Signal, endpoint: Endpoint) -> None:
    """Make what would export `signal` to `endpoint`, and let it go; nothing is sent.

    Raises:
        Exception: OpenTelemetry cannot use one of its variables, or is not installed whole.
    """
    if signal == "metrics":
        _metric_exporter(endpoint).shutdown()
    else:
        provider = TracerProvider(shutdown_on_exit=False)
        queue = _TraceQueue(_TraceExporter(_span_exporter(endpoint), provider))
        queue.shutdown()  # type: ignore[no-untyped-call]


def _exporter_module(endpoint: Endpoint, signal: str) -> Any:
    kind = "grpc" if endpoint.protocol == "grpc" else "http"
    module = import_module(f"opentelemetry.exporter.otlp.proto.{kind}.{signal}_exporter")
    _quieten(_GRPC_LOGGER if kind == "grpc" else module.__name__)
    return module


def _span_exporter(endpoint: Endpoint) -> SpanExporter:
    module, given = _exporter_module(endpoint, "trace"), _given(endpoint)
    if endpoint.protocol == "grpc":
        exporter: SpanExporter = module.OTLPSpanExporter(**given)
        rejected.listen(exporter)
    else:
        exporter = module.OTLPSpanExporter(**given, session=rejected.listening_session())
    return exporter


def _metric_exporter(endpoint: Endpoint) -> MetricExporter:
    module = _exporter_module(endpoint, "metric")
    given = _given(endpoint)
    if endpoint.protocol != "grpc":
        given["session"] = rejected.strict_session("METRICS")
    exporter: MetricExporter = module.OTLPMetricExporter(**given)
    return exporter


def _given(endpoint: Endpoint) -> dict[str, Any]:
    """What both exporters are told.

    Those of gRPC would let a variable beat the scheme, and refuse `none` as a compression.
    """
    given: dict[str, Any] = {"endpoint": endpoint.url, "headers": dict(endpoint.headers)}
    if endpoint.protocol == "grpc":
        kinds = import_module("grpc").Compression
        given["insecure"] = endpoint.is_plain
        given["compression"] = kinds.Gzip if endpoint.compression else kinds.NoCompression
    return given


def _announce(what: str, endpoint: Endpoint) -> None:
    faults.log().info("llm_trace: %s go to %s over %s.", what, endpoint.shown, endpoint.protocol)


class _Seldom(logging.Filter):
    """Lets one record a minute through: a collector that is down is said, not repeated."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 0

    def filter(self, record: logging.LogRecord) -> bool:  # noqa: ARG002
        now = SYSTEM.monotonic_ns()
        if now < self._next:
            return False
        self._next = now + _QUIET_SECONDS * 10**9
        return True


def _quieten(logger_name: str) -> None:
    logger = logging.getLogger(logger_name)
    if not any(isinstance(f, _Seldom) for f in logger.filters):
        logger.addFilter(_Seldom())
