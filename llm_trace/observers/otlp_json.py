"""Finished spans as OTLP JSON, the form that files and debug pages use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from llm_trace import semconv as s
from llm_trace.observers.sink import FinishedSpan
from llm_trace.observers.values import Value

_FAILED = 2
"""`STATUS_CODE_ERROR`."""


def document(spans: Iterable[FinishedSpan], service: str) -> dict[str, Any]:
    """An OTLP export request of one resource.

    Args:
        spans: What to write.
        service: `service.name`.
    """
    scope = {"scope": {"name": s.SCOPE}, "spans": [_span(span) for span in spans]}
    resource = {"attributes": [_pair("service.name", service)]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}


def _span(span: FinishedSpan) -> dict[str, Any]:
    written = {
        "traceId": f"{span.context.trace_id:032x}",
        "spanId": f"{span.context.span_id:016x}",
        "name": span.name,
        "kind": span.kind.value + 1,  # the API counts from 0, OTLP from 1
        "startTimeUnixNano": str(span.start),
        "endTimeUnixNano": str(span.end),
        "attributes": [_pair(key, value) for key, value in span.attributes.items()],
    }
    if span.parent is not None:
        written["parentSpanId"] = f"{span.parent.span_id:016x}"
    if span.failed:
        written["status"] = {"code": _FAILED}
    return written


def _pair(key: str, value: Value) -> dict[str, Any]:
    return {"key": key, "value": _value(value)}


def _value(value: object) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, tuple | list):
        return {"arrayValue": {"values": [_value(item) for item in value]}}
    return {"stringValue": str(value)}
