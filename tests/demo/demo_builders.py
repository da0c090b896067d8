"""Answers, spans and exports made by hand for the demo's tests."""

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from llm_trace import semconv
from llm_trace.demo.client import Answer
from llm_trace.demo.engine import APP_SERVICE, VLLM_SERVICE
from llm_trace.demo.joined import join
from llm_trace.traces.spans import Span

TRACE = "0af7651916cd43dd8448eb211c80319c"
SENT = 1_000_000_000


def answer(kind="unique", ttft=0.1, **changes):
    """Build an answer that came in full."""
    facts = {"trace_id": TRACE, "sent_wall_ns": SENT, "status": 200, "last": 2 * (ttft or 0)}
    return Answer(kind, ttft=ttft, **(facts | changes))


def span(name, start=0.0, end=1.0, *, span_id="01", parent="", service=APP_SERVICE, **attributes):
    """Build a span that starts and ends so many seconds after the client sent."""
    at = [SENT + round(seconds * 1e9) for seconds in (start, end)]
    return Span(TRACE, span_id, parent, name, service, *at, attributes)


def root(service, phases, **attributes):
    """Build the span of a whole request from the seconds of each phase."""
    ledger = {semconv.TTFT_PHASE_PREFIX + phase: took for phase, took in phases.items()}
    whole = {semconv.OUTCOME: "ok", semconv.TTFT: sum(phases.values()), **ledger, **attributes}
    parent = {"parent": "aa"} if service == VLLM_SERVICE else {}
    return span("chat demo-tiny", service=service, span_id=service, **parent, **whole)


def joined(kind="unique", ttft=0.1, app=None, engine=None, **attributes):
    """Build a joined request from the two ledgers."""
    spans = [root(APP_SERVICE, app or {"admission": 0.01, "engine": ttft - 0.02})]
    if engine:
        spans.append(root(VLLM_SERVICE, engine, **attributes))
    return join(answer(kind, ttft), spans)


def export(name="chat", service="rag-app", trace=TRACE, end=2, **attributes):
    """Build the body of one OTLP export that holds one span."""
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    group.resource.attributes.add(key="service.name").value.string_value = service
    made = group.scope_spans.add().spans.add()
    made.name, made.trace_id, made.span_id = name, bytes.fromhex(trace), b"\1" * 8
    made.start_time_unix_nano, made.end_time_unix_nano = 1, end
    for key, value in attributes.items():
        made.attributes.add(key=key).value.double_value = value
    return request.SerializeToString()
