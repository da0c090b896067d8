"""Spans from JSON: each dress that a span comes in is the same span."""

from __future__ import annotations

import json

from google.protobuf.json_format import MessageToJson
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from llm_trace.traces.otlp import read
from llm_trace.traces.spans import Span

TRACE = "65297f47cf671d730a12eccb12bd9bf3"
ATTRIBUTES = {
    "llm_trace.outcome": "ok",
    "llm_trace.ttft": 0.25,
    "gen_ai.usage.input_tokens": 7,
    "stream": True,
    "reasons": ["stop", "length"],
}
SPAN = Span(TRACE, "00000000000000a2", "00000000000000a1", "chat", "app", 5, 9, ATTRIBUTES)


def exported():
    """The span as an exporter sends it."""
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    group.resource.attributes.add(key="service.name").value.string_value = "app"
    made = group.scope_spans.add().spans.add(name="chat")
    made.trace_id, made.span_id = bytes.fromhex(TRACE), bytes.fromhex(SPAN.span_id)
    made.parent_span_id = bytes.fromhex(SPAN.parent_id)
    made.start_time_unix_nano, made.end_time_unix_nano = 5, 9
    values = {key: made.attributes.add(key=key).value for key in ATTRIBUTES}
    values["llm_trace.outcome"].string_value = "ok"
    values["llm_trace.ttft"].double_value = 0.25
    values["gen_ai.usage.input_tokens"].int_value = 7
    values["stream"].bool_value = True
    for reason in ATTRIBUTES["reasons"]:
        values["reasons"].array_value.values.add().string_value = reason
    return request


def test_what_exporters_send_is_read_as_protobuf_writes_it_in_json():
    """Ids in base64 and numbers as text, in either spelling of the names; so writes older Tempo."""
    for names in (False, True):
        text = MessageToJson(exported(), preserving_proto_field_name=names)
        assert read(text) == ([SPAN], 0)


def test_ids_in_hexadecimal_are_read():
    """As OTLP says that its JSON has them."""
    span = {"traceId": TRACE.upper(), "spanId": "00000000000000a2", "startTimeUnixNano": 5}
    group = {"scopeSpans": [{"spans": [span | {"endTimeUnixNano": "9"}]}]}

    assert read(json.dumps({"resourceSpans": [group]})) == (
        [Span(TRACE, "00000000000000a2", "", "", "", 5, 9, {})],
        0,
    )


def test_ids_of_jaeger_may_lack_their_zeros():
    """The parent is found all the same."""
    spans = [
        {"traceID": "ab", "spanID": "1", "startTime": 5, "duration": 1},
        {
            "traceID": "ab",
            "spanID": "2",
            "startTime": 5,
            "duration": 1,
            "references": [{"refType": "CHILD_OF", "spanID": "01"}],
        },
    ]
    root, child = read(json.dumps({"data": [{"spans": spans}]})).spans

    assert root.trace_id == f"{0xAB:032x}"
    assert child.parent_id == root.span_id == f"{1:016x}"
