"""The table of contenders: the same app bare, behind its peers, and behind llm_trace.

Every contender has providers and registries of its own, and its spans are sampled and batched for
an exporter that drops them: what they cost the collector is no concern of the app.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from prometheus_client import CollectorRegistry
from prometheus_fastapi_instrumentator import Instrumentator

import llm_trace
from llm_trace.asgi.middleware import LedgerMiddleware
from llm_trace.asgi.types import ASGIApp
from llm_trace.core.dispatch import Dispatch, Observer
from llm_trace.core.verdict import Judge
from llm_trace.diagnosis.known import Judging
from llm_trace.observers.metrics import Instruments
from llm_trace.observers.recorder import MetricsObserver
from llm_trace.observers.sdk.pipeline import Pipeline
from llm_trace.observers.sdk.provider import ProviderSink
from llm_trace.observers.sink import SpanSink
from llm_trace.observers.spans import SpanObserver
from llm_trace.observers.tracer import OtelTracer
from llm_trace.observers.verdicts import VerdictObserver
from llm_trace.settings import Settings
from tests.benchmarks.answer import Silent, Voiced, serving

QUEUE: Final = 2**16
"""Room for the spans of one measurement: a span that is dropped would be too cheap."""


class DroppingExporter(SpanExporter):
    """Takes spans and counts them."""

    def __init__(self) -> None:
        self.spans = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Drop `spans`."""
        self.spans += len(spans)
        return SpanExportResult.SUCCESS


class Contender(NamedTuple):
    """An app to drive, and what is behind it."""

    app: ASGIApp
    settle: Callable[[], object] = lambda: None
    """Exports what is queued."""
    close: Callable[[], object] = lambda: None
    """Ends its threads."""
    exporter: DroppingExporter | None = None


def bare() -> Contender:
    """The app alone."""
    return Contender(serving(Silent()))


def otel(exclude_spans: list[str] | None = None) -> Contender:
    """OpenTelemetry's ASGI middleware, with spans and metrics."""
    provider, exporter = _provider()
    middleware = OpenTelemetryMiddleware(
        serving(Silent()),
        tracer_provider=provider,
        meter_provider=_meter_provider(),
        exclude_spans=exclude_spans,
    )
    return Contender(middleware, provider.force_flush, provider.shutdown, exporter)


def otel_one_span() -> Contender:
    """The same without its spans per message."""
    return otel(["send", "receive"])


def prometheus() -> Contender:
    """prometheus-fastapi-instrumentator, as its README installs it."""
    app = serving(Silent())
    Instrumentator(registry=CollectorRegistry()).instrument(app)
    return Contender(app)


def disabled() -> Contender:
    """`instrument()` with the setting `enabled` false."""
    return Contender(llm_trace.instrument(serving(Silent()), enabled=False))


def disabled_middleware() -> Contender:
    """`TraceMiddleware` with the setting `enabled` false, as a flag of a server adds it."""
    return Contender(llm_trace.TraceMiddleware(serving(Silent()), Settings(enabled=False)))


def metrics_only() -> Contender:
    """Every metric and no tracer provider, for an app that says all it can."""
    return Contender(_traced(Voiced(), Dispatch(observers=_metrics())))


def metrics_unsaid() -> Contender:
    """The same for an app that was not touched."""
    return Contender(_traced(Silent(), Dispatch(observers=_metrics())))


def full() -> Contender:
    """Root span, phase spans and every metric with exemplars, for an app that says all it can.

    Exported as `instrument()` does it where an endpoint is configured.
    """
    exporter = DroppingExporter()
    pipeline = Pipeline(10.0)
    sink = pipeline.add_exporter(exporter, room=QUEUE)
    return Contender(_spanned(sink), sink.flush, pipeline.shutdown, exporter)


def full_provider() -> Contender:
    """The same through a provider of the app's own."""
    provider, exporter = _provider()
    sink = ProviderSink(provider)
    return Contender(_spanned(sink), provider.force_flush, provider.shutdown, exporter)


CONTENDERS: Final[dict[str, tuple[str, Callable[[], Contender]]]] = {
    "bare": ("bare app", bare),
    "otel": ("OpenTelemetry ASGI, defaults", otel),
    "otel_one_span": ("OpenTelemetry ASGI, one span", otel_one_span),
    "prometheus": ("prometheus-fastapi-instrumentator", prometheus),
    "disabled": ("llm_trace, instrument() disabled", disabled),
    "disabled_middleware": ("llm_trace, middleware disabled", disabled_middleware),
    "metrics_unsaid": ("llm_trace, metrics, untouched app", metrics_unsaid),
    "metrics_only": ("llm_trace, metrics, app's voice", metrics_only),
    "full": ("llm_trace, spans and metrics, app's voice", full),
    "full_provider": ("the same, through the app's provider", full_provider),
}
"""Key, what the report calls it, and how it is built."""


def _provider() -> tuple[TracerProvider, DroppingExporter]:
    exporter = DroppingExporter()
    provider = TracerProvider(ALWAYS_ON, Resource.create({}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=QUEUE))
    return provider, exporter


def _meter_provider() -> MeterProvider:
    reader = InMemoryMetricReader()
    return MeterProvider([reader], Resource.create({}), shutdown_on_exit=False)


def _metrics(judge: Judge | None = None) -> tuple[Observer, ...]:
    instruments = Instruments()
    recorder = MetricsObserver(instruments)
    verdicts = VerdictObserver(instruments, judge or Judging(Settings()), recorder.base)
    return recorder, verdicts


def _spanned(sink: SpanSink) -> LedgerMiddleware:
    judge = Judging(Settings())
    spans = SpanObserver(lambda: sink, limit=1024, latency=True, judge=judge)
    return _traced(Voiced(), Dispatch(OtelTracer(lambda: sink), [spans, *_metrics(judge)]))


def _traced(endpoint: ASGIApp, dispatch: Dispatch) -> LedgerMiddleware:
    return LedgerMiddleware(serving(endpoint), settings=Settings(), dispatch=dispatch)
