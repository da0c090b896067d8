"""The SDK's side: sinks over providers, exporters that are counted, and an end in bounded time."""

import logging
import os
import threading
from collections import Counter

import pytest
from grpc_receiver import GrpcReceiver
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import NoOpTracerProvider, SpanContext, SpanKind, StatusCode, TraceFlags
from programs import eventually, free_port

from llm_trace import semconv as s
from llm_trace.core import faults
from llm_trace.core.clock import SYSTEM, Clock
from llm_trace.observers.endpoint import Endpoint, resolve
from llm_trace.observers.metrics import Instruments
from llm_trace.observers.sdk import exporters, origin, queue
from llm_trace.observers.sdk import pipeline as pipelines
from llm_trace.observers.sdk.pipeline import Pipeline
from llm_trace.observers.sdk.provider import ProviderSink, sink_of
from llm_trace.observers.sdk.queue import TraceExporter
from llm_trace.observers.sink import FinishedSpan

EXEMPLAR = {"trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": "b7ad6b7169203331"}


@pytest.fixture(autouse=True)
def counted(monkeypatch):
    """Nothing dropped or failed yet."""
    monkeypatch.setattr(faults, "spans", Counter())
    monkeypatch.setattr(faults, "internal", Counter())


@pytest.fixture
def pipeline():
    """A pipeline that has a second for its end."""
    pipeline = Pipeline(1.0)
    yield pipeline
    pipeline.shutdown()


def finished(name="chat m", *, failed=False):
    """A finished span."""
    context = SpanContext(1, 2, is_remote=False, trace_flags=TraceFlags(1))
    return FinishedSpan(name, context, None, SpanKind.SERVER, 10, 20, {"a": 1}, failed=failed)


@pytest.mark.parametrize("failed", [False, True])
def test_a_finished_span_reaches_the_apps_own_processors(failed):
    """With the stamps, the ids and the status that it came with, under the provider's resource."""
    provider = TracerProvider(resource=Resource({"service.name": "app"}), shutdown_on_exit=False)
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    sink_of(provider).emit([finished(failed=failed)])
    (span,) = exporter.get_finished_spans()

    assert (span.name, span.start_time, span.end_time) == ("chat m", 10, 20)
    assert (span.context.trace_id, span.context.span_id, span.parent) == (1, 2, None)
    assert span.resource.attributes["service.name"] == "app"
    assert (span.status.status_code is StatusCode.ERROR) is failed
    assert (span.instrumentation_scope.name, span.instrumentation_scope.schema_url) == (
        s.SCOPE,
        s.SCHEMA_URL,
    )


def test_the_providers_own_sampler_and_ids_are_used():
    """What the app decided for its traces holds for ours."""
    sink = sink_of(TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False))

    assert sink.sample(None, sink.new_trace_id(), "chat", SpanKind.SERVER) == (False, None)
    assert sink.new_trace_id() != sink.new_trace_id()
    assert sink.new_span_id() != sink.new_span_id()


def test_who_is_no_sink():
    """The API's provider, and the one that vLLM sets for its own spans."""
    engines = TracerProvider(
        resource=Resource({"vllm.instrumenting_module_name": "vllm.llm_engine"}),
        shutdown_on_exit=False,
    )

    assert sink_of(NoOpTracerProvider()) is None
    assert sink_of(engines) is None
    assert isinstance(sink_of(TracerProvider(shutdown_on_exit=False)), ProviderSink)


class Staged(SpanExporter):
    """Does with each batch what it is told; waits at the gate before."""

    def __init__(self, outcome=SpanExportResult.SUCCESS):
        self.outcome = outcome
        self.gate = threading.Event()
        self.gate.set()
        self.batches = []
        self.ended = False

    def export(self, spans):
        """Take a batch."""
        self.gate.wait(10)
        self.batches.append(len(spans))
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    def shutdown(self):
        """End."""
        self.ended = True

    def force_flush(self, timeout_millis=30_000):
        """There is nothing to flush."""
        return timeout_millis > 0


@pytest.fixture
def staged(monkeypatch):
    """An exporter in the place of OTLP's."""
    exporter = Staged()
    monkeypatch.setattr(pipelines, "span_exporter", lambda _endpoint: exporter)
    return exporter


ENDPOINT = Endpoint("http://127.0.0.1:1", "grpc")


@pytest.mark.parametrize(
    ("outcome", "lost"),
    [
        (SpanExportResult.SUCCESS, 0),
        (SpanExportResult.FAILURE, 3),
        (ConnectionError("no collector"), 3),
    ],
)
def test_what_could_not_be_sent_is_counted(staged, pipeline, outcome, lost, caplog):
    """Whether the exporter says so or raises; `force_flush` and `shutdown` reach it."""
    staged.outcome = outcome
    sink = pipeline.add_spans(ENDPOINT)
    for _ in range(3):
        sink.emit([finished()])
    pipeline.flush()
    pipeline.shutdown()

    assert staged.batches == [3]
    assert staged.ended is True
    assert +faults.spans == Counter(export_failed=lost) - Counter()
    assert isinstance(outcome, Exception) == bool(caplog.records)


def test_the_exporter_of_traces_flushes_what_it_wraps():
    """The SDK may ask it."""
    assert TraceExporter(Staged(), TracerProvider(shutdown_on_exit=False)).force_flush(5) is True


def test_a_full_queue_refuses_and_counts(staged, pipeline, monkeypatch):
    """Memory is bounded while the collector is slow: what is over the queue is refused."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")
    staged.gate.clear()
    sink = pipeline.add_spans(ENDPOINT)
    for _ in range(10):
        sink.emit([finished()])
    staged.gate.set()
    pipeline.flush()

    assert faults.spans == Counter(queue_full=6)
    assert sum(staged.batches) == 4
    sink.emit([finished()])
    assert faults.spans == Counter(queue_full=6)


def test_a_trace_is_refused_as_a_whole(staged, pipeline, monkeypatch):
    """Room is counted in spans: half a trace is of no use."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")
    staged.gate.clear()
    sink = pipeline.add_spans(ENDPOINT)
    for size in (3, 2, 1):
        sink.emit([finished()] * size)
    staged.gate.set()
    pipeline.flush()

    assert faults.spans == Counter(queue_full=2)
    assert staged.batches in ([2, 2], [2, 1, 1])


@pytest.mark.parametrize(
    "outcome", [SpanExportResult.FAILURE, ConnectionError("no collector")], ids=["said", "raised"]
)
def test_a_failed_export_takes_no_room(staged, pipeline, monkeypatch, outcome):
    """Every span of a trace is counted, however many exports it takes, and the queue is free."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "5")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")
    staged.outcome = outcome
    sink = pipeline.add_spans(ENDPOINT)
    for _ in range(3):
        sink.emit([finished()] * 5)
        pipeline.flush()

    assert staged.batches == [2, 2, 1] * 3
    assert faults.spans == Counter(export_failed=15)


def test_requests_go_before_the_making_of_spans(staged, pipeline, monkeypatch):
    """The background gives way before each trace, so that no request waits for a batch of them."""
    waits = []
    monkeypatch.setattr(queue, "sleep", waits.append)
    sink = pipeline.add_spans(ENDPOINT)
    for _ in range(3):
        sink.emit([finished()] * 10)
    pipeline.flush()

    assert waits == [0, 0, 0]


def test_a_trace_that_cannot_be_made_costs_no_other(staged, pipeline):
    """It is contained and counted where spans are made, in the background."""

    class Broken(list):
        """A trace whose spans fail."""

        def __iter__(self):
            raise ValueError("no")

    sink = pipeline.add_spans(ENDPOINT)
    with faults.production():
        for trace in ([finished()], Broken([1]), [finished()]):
            sink.emit(trace)
        pipeline.flush()

    assert sum(staged.batches) == 2
    assert faults.internal == Counter(SpanObserver=1)


def test_the_end_is_bounded_even_while_an_export_hangs(staged, caplog):
    """A collector that never answers costs the limit and no more."""
    staged.gate.clear()
    pipeline = Pipeline(0.05)
    sink = pipeline.add_spans(ENDPOINT)
    sink.emit([finished()])
    begun = SYSTEM.monotonic_ns()
    pipeline.flush()
    pipeline.shutdown()

    assert 0.1 <= (SYSTEM.monotonic_ns() - begun) / 1e9 < 5
    staged.gate.set()
    eventually(lambda: staged.ended, "the exporter was not ended", within=10)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_ends_no_exporter_of_its_parent(staged, pipeline):
    """It would send a second time what the parent sends."""
    pipeline.add_spans(ENDPOINT)
    child = os.fork()
    if not child:
        pipeline.shutdown()
        os._exit(1 if staged.ended else 7)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_fault_at_the_end_is_counted(pipeline):
    """Whatever raises there, the process ends as it would."""

    def broken():
        raise OSError("no")

    pipeline._shutdowns.append(broken)
    pipeline.shutdown()

    assert faults.internal == Counter(shutdown=1)


class Kept(MetricExporter):
    """Keeps what it is given."""

    def __init__(self):
        super().__init__()
        self.given = []

    def export(self, metrics_data, timeout_millis=10_000, **kwargs):
        """Keep an export."""
        self.given.append(metrics_data)
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis=10_000):
        """There is nothing to flush."""
        return True

    def shutdown(self, timeout_millis=30_000, **kwargs):
        """There is nothing to end."""


def test_metrics_are_made_from_the_accumulators_when_exported(pipeline, monkeypatch):
    """Kinds, units, temporality, numbers and exemplars, under our scope."""
    exporter = Kept()
    monkeypatch.setattr(pipelines, "metric_exporter", lambda _endpoint: exporter)
    instruments = Instruments()
    instruments.child(s.TIME_TO_FIRST_TOKEN, ("chat", "vllm", "m", "warm")).observe(0.2, EXEMPLAR)
    instruments.child(s.REQUESTS, ("chat", "vllm", "m", "ok", "finish")).inc(2)
    pipeline.add_metrics(ENDPOINT, instruments.collect)
    pipeline.flush()

    (resource,) = exporter.given[0].resource_metrics
    (scope,) = resource.scope_metrics
    by_name = {metric.name: metric for metric in scope.metrics}
    assert scope.scope == origin.SCOPE
    assert by_name[s.REQUESTS.name].data.is_monotonic is True
    assert by_name[s.REQUESTS_ACTIVE.name].data.is_monotonic is False
    assert [p.value for p in by_name[s.REQUESTS.name].data.data_points] == [2]
    (point,) = by_name[s.TIME_TO_FIRST_TOKEN.name].data.data_points
    assert (point.count, point.sum, by_name[s.TIME_TO_FIRST_TOKEN.name].unit) == (1, 0.2, "s")
    (exemplar,) = point.exemplars
    assert f"{exemplar.trace_id:032x}" == EXEMPLAR["trace_id"]
    assert exemplar.time_unix_nano > 10**18
    assert point.start_time_unix_nano <= point.time_unix_nano


def test_a_backend_may_prefer_what_came_since_the_last_export(pipeline, monkeypatch):
    """By the standard variable: counters and histograms grow, what is active now is as it is."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta")
    instruments = Instruments()
    requests = instruments.child(s.REQUESTS, ("chat", "vllm", "m", "ok", "finish"))
    with GrpcReceiver() as receiver:
        pipeline.add_metrics(Endpoint(receiver.endpoint, "grpc"), instruments.collect)
        exports = []
        for number in (3, 2):
            requests.inc(number)
            pipeline.flush()
            exports.append(receiver.metrics())

    sums = [export[s.REQUESTS.name]["sum"] for export in exports]
    points = [point for each in sums for point in each["dataPoints"]]
    assert [point["asDouble"] for point in points] == [3, 2]
    assert points[0]["timeUnixNano"] == points[1]["startTimeUnixNano"]
    assert {each["aggregationTemporality"] for each in sums} == {"AGGREGATION_TEMPORALITY_DELTA"}
    active = exports[1][s.REQUESTS_ACTIVE.name]["sum"]
    assert active["aggregationTemporality"] == "AGGREGATION_TEMPORALITY_CUMULATIVE"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_tells_none_of_its_parents_metrics(pipeline, monkeypatch):
    """The SDK lets the reader go on there, and the parent's old numbers would come in its name."""
    exporter = Kept()
    monkeypatch.setattr(pipelines, "metric_exporter", lambda _endpoint: exporter)
    pipeline.add_metrics(ENDPOINT, Instruments().collect)

    child = os.fork()
    if not child:
        pipeline._flushes[0]()
        os._exit(len(exporter.given))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    pipeline.flush()
    assert len(exporter.given) == 1


def test_both_signals_over_grpc(pipeline, caplog):
    """Headers go along as metadata, and each destination is said once."""
    with GrpcReceiver() as receiver, caplog.at_level(logging.INFO, "llm_trace"):
        endpoint = Endpoint(receiver.endpoint, "grpc", {"api-key": "a,b"})
        sink = pipeline.add_spans(endpoint)
        pipeline.add_metrics(endpoint, Instruments().collect)
        sink.emit([finished()])
        pipeline.flush()

        assert [span.name for span in receiver.spans()] == ["chat m"]
        assert s.REQUESTS_ACTIVE.name in receiver.metrics()
        assert receiver.metadata[0]["api-key"] == "a,b"
    said = [r.getMessage() for r in caplog.records if r.name == "llm_trace"]
    assert [receiver.endpoint in line for line in said] == [True, True]


@pytest.mark.parametrize("drawn", [{}, {"service.instance.id": "a"}])
def test_a_process_is_told_apart_whatever_the_sdk_draws(drawn, pipeline, monkeypatch):
    """Workers of one service: an SDK of our lowest version has no id for each of them."""
    monkeypatch.setattr(origin.Resource, "create", lambda _attributes: Resource(drawn))
    spans, metrics = InMemorySpanExporter(), Kept()
    monkeypatch.setattr(pipelines, "metric_exporter", lambda _endpoint: metrics)
    pipeline.add_exporter(spans).emit([finished()])
    pipeline.add_metrics(ENDPOINT, Instruments().collect)
    pipeline.flush()

    (span,) = spans.get_finished_spans()
    ids = [
        resource.attributes["service.instance.id"]
        for resource in (span.resource, metrics.given[0].resource_metrics[0].resource)
    ]
    assert ids[0] == ids[1] == drawn.get("service.instance.id", ids[0])


@pytest.mark.parametrize("own", [True, False])
def test_the_limits_of_the_specification_hold_for_our_spans(own, pipeline, monkeypatch):
    """By variables that an operator may rely on, through the app's provider and through ours."""
    monkeypatch.setenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "3")
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "2")
    exporter = InMemorySpanExporter()
    if own:
        sink = pipeline.add_exporter(exporter)
    else:
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        sink = sink_of(provider)
    sink.emit([finished()._replace(attributes={"first": 1, "text": "abcd", "list": ("abcd", "e")})])
    pipeline.flush()

    (span,) = exporter.get_finished_spans()
    assert dict(span.attributes) == {"text": "abc", "list": ("abc", "e")}
    assert span.dropped_attributes == 1


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_every_compression_of_the_specification_works_over_grpc(compression, pipeline, monkeypatch):
    """Also `none`, which the SDK's own exporter refuses."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", compression)
    with GrpcReceiver() as receiver:
        endpoint = resolve("traces", os.environ, endpoint=receiver.endpoint)
        pipeline.add_spans(endpoint).emit([finished()])
        pipeline.add_metrics(endpoint, Instruments().collect)
        pipeline.flush()

        assert [span.name for span in receiver.spans()] == ["chat m"]
        assert s.REQUESTS_ACTIVE.name in receiver.metrics()


@pytest.mark.parametrize(("room", "batch"), [("4", "512"), ("2048", "100000"), ("1", "1")])
def test_a_batch_is_never_larger_than_the_queue(room, batch, pipeline, monkeypatch):
    """One of the two variables alone may be set; the SDK would refuse it and nothing be sent."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", room)
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", batch)
    exporter = InMemorySpanExporter()
    pipeline.add_exporter(exporter).emit([finished()])
    pipeline.flush()

    assert len(exporter.get_finished_spans()) == 1


@pytest.mark.parametrize("insecure", ["false", ""])
def test_the_scheme_says_whether_there_is_tls(insecure, pipeline, monkeypatch):
    """By the specification it beats the variable, which the SDK asks first."""
    for name in ("", "TRACES_", "METRICS_"):
        monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}INSECURE", insecure)
    with GrpcReceiver() as receiver:
        endpoint = Endpoint(receiver.endpoint, "grpc")
        sink = pipeline.add_spans(endpoint)
        pipeline.add_metrics(endpoint, Instruments().collect)
        sink.emit([finished()])
        pipeline.flush()

        assert [span.name for span in receiver.spans()] == ["chat m"]
        assert s.REQUESTS_ACTIVE.name in receiver.metrics()


def test_both_signals_over_http(pipeline, tap):
    """The same over the other transport."""
    sink = pipeline.add_spans(Endpoint(f"{tap.endpoint}/v1/traces", "http/protobuf"))
    pipeline.add_metrics(
        Endpoint(f"{tap.endpoint}/v1/metrics", "http/protobuf"), Instruments().collect
    )
    sink.emit([finished()])
    pipeline.flush()

    eventually(lambda: [x.name for x in tap.spans()] == ["chat m"], "no span came")
    eventually(lambda: s.REQUESTS_ACTIVE.name in tap.metrics(), "no metric came")


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_a_dead_collector_is_said_once(protocol, pipeline, monkeypatch, caplog):
    """One line a minute for each exporter, whatever is tried meanwhile."""
    endpoint = Endpoint(f"http://127.0.0.1:{free_port()}", protocol)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    exporter = exporters.span_exporter(endpoint)
    name = next(x for x in (type(exporter).__module__, exporters._GRPC_LOGGER) if _seldom(x))
    for one in _seldom(name):
        one._next = 0
    for _ in range(3):
        logging.getLogger(name).warning("no collector")

    assert [r.name for r in caplog.records] == [name]
    exporter.shutdown()


def _seldom(name):
    return [x for x in logging.getLogger(name).filters if isinstance(x, exporters._Seldom)]


def test_a_minute_later_it_is_said_again(monkeypatch):
    """The filter lets one record a minute through."""
    now = [10**9]
    monkeypatch.setattr(exporters, "SYSTEM", Clock(lambda: now[0], lambda: now[0]))
    seldom = exporters._Seldom()
    heard = []
    for seconds in (0, 1, 58, 2, 1):
        now[0] += seconds * 10**9
        heard.append(seldom.filter(None))

    assert heard == [True, False, False, True, False]


def test_a_logger_is_quietened_once():
    """However many exporters there are."""
    for _ in range(3):
        exporters._quieten("llm_trace.test.exporter")

    assert len(_seldom("llm_trace.test.exporter")) == 1
