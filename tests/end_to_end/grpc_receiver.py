"""An OTLP receiver over gRPC, from nothing but OpenTelemetry's generated services."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics_pb
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as trace_grpc
from programs import LOOPBACK
from tap import Traces, span_of


class GrpcReceiver(Traces, trace_grpc.TraceServiceServicer, metrics_grpc.MetricsServiceServicer):
    """Keeps what it is sent; a context manager that serves while it is entered."""

    def __init__(self):
        self._spans = []
        self._metrics = {}
        self.metadata = []
        self._server = grpc.server(ThreadPoolExecutor(2))
        trace_grpc.add_TraceServiceServicer_to_server(self, self._server)
        metrics_grpc.add_MetricsServiceServicer_to_server(_Metrics(self._metrics), self._server)
        self.port = self._server.add_insecure_port(f"{LOOPBACK}:0")

    def __enter__(self):
        self._server.start()
        return self

    def __exit__(self, *_):
        self._server.stop(None).wait()

    @property
    def endpoint(self):
        """What OTEL_EXPORTER_OTLP_ENDPOINT is to be."""
        return f"http://{LOOPBACK}:{self.port}"

    def Export(self, request, context):  # noqa: N802 - the service's name
        """Keep the spans of one export."""
        self.metadata.append(dict(context.invocation_metadata()))
        for group in request.resource_spans:
            for scope in group.scope_spans:
                self._spans += [_span(span) for span in scope.spans]
        return trace_pb.ExportTraceServiceResponse()

    def spans(self):
        """Every span so far."""
        return list(self._spans)

    def metrics(self):
        """The latest form of every metric, by its OTLP name."""
        return dict(self._metrics)


class _Metrics(metrics_grpc.MetricsServiceServicer):
    def __init__(self, metrics):
        self._metrics = metrics

    def Export(self, request, context):  # noqa: N802 - the service's name
        """Keep the metrics of one export."""
        for group in request.resource_metrics:
            for scope in group.scope_metrics:
                self._metrics |= {x.name: MessageToDict(x) for x in scope.metrics}
        return metrics_pb.ExportMetricsServiceResponse()


def _span(span):
    document = MessageToDict(span, use_integers_for_enums=True)
    ids = {"traceId": span.trace_id, "spanId": span.span_id, "parentSpanId": span.parent_span_id}
    attributes = {"attributes": document.get("attributes", [])}
    return span_of(document | attributes | {name: value.hex() for name, value in ids.items()})
