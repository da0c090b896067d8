"""Spans from JSON: OTLP in all its dress, and Jaeger's own form.

OTLP comes whole, line by line (the collector's file exporter), or as Tempo's API wraps it; ids are
hexadecimal or base64, and numbers may be text. What cannot be read as a span is counted and left.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from llm_trace.traces.spans import MAX_SPANS, Span, TraceError

_WRAPPERS: Final = ("trace", "result")
"""Around the answers of Tempo's second API and of Jaeger's third."""
_GROUPS: Final = ("resourceSpans", "resource_spans", "batches")
_SCOPES: Final = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans")
_ID_LENGTHS: Final = (16, 32)
_MAX_NS: Final = 2**63
_HEX: Final = frozenset("0123456789abcdef")
_MAX_TEXT: Final = 4096


class Read(NamedTuple):
    """What a text held."""

    spans: list[Span]
    unreadable: int
    """Things that should have been spans."""


def read(text: str) -> Read:
    """The spans of a document, or of one document a line.

    Raises:
        TraceError: It is no JSON, or none that holds spans.
    """
    spans: list[Span] = []
    unreadable = 0
    for document in _documents(text):
        for found in spans_of(document):
            if found is None:
                unreadable += 1
            else:
                spans.append(found)
            if len(spans) >= MAX_SPANS:
                raise TraceError(f"more than {MAX_SPANS} spans: ask for one trace.")
    if not spans:
        more = f" {unreadable} things in it were no spans." if unreadable else ""
        raise TraceError(
            "there is no span in it: expected OTLP JSON (resourceSpans), a file of the collector's "
            f"file exporter, or what Tempo's or Jaeger's API answers.{more}"
        )
    return Read(spans, unreadable)


def _documents(text: str) -> Iterator[Any]:
    try:
        yield json.loads(text)
    except (ValueError, RecursionError):
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) <= 1:
            raise TraceError(f"this is no JSON: it begins with {text[:40]!r}.") from None
        yield from map(_line, lines)


def _line(text: str) -> Any:
    """One line; the last of a file that is being written may be cut, which harms no other."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {"resourceSpans": [None]}


def spans_of(document: Any) -> Iterator[Span | None]:
    """The spans of one parsed document; None for each thing that should have been one."""
    for part in document if isinstance(document, list) else [document]:
        if not isinstance(part, Mapping):
            continue
        inner = (part.get(key) for key in _WRAPPERS)
        whole = next((each for each in inner if isinstance(each, Mapping)), part)
        if isinstance(whole.get("data"), list):
            yield from _jaeger(whole["data"])
        for key in _GROUPS:
            for group in _list(whole.get(key)):
                yield from _group(group)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


# --- OTLP ---------------------------------------------------------------------------------------


def _group(group: Any) -> Iterator[Span | None]:
    if not isinstance(group, Mapping):
        yield None
        return
    resource = group.get("resource")
    named = _attributes(resource.get("attributes") if isinstance(resource, Mapping) else None)
    service = str(named.get("service.name", ""))[:_MAX_TEXT]
    for key in _SCOPES:
        for scope in _list(group.get(key)):
            for span in _list(scope.get("spans") if isinstance(scope, Mapping) else None):
                yield _span(span, service)


def _span(span: Any, service: str) -> Span | None:
    if not isinstance(span, Mapping):
        return None
    start = _ns(span.get("startTimeUnixNano", span.get("start_time_unix_nano")))
    end = _ns(span.get("endTimeUnixNano", span.get("end_time_unix_nano")))
    trace_id = _id(span.get("traceId", span.get("trace_id")))
    span_id = _id(span.get("spanId", span.get("span_id")))
    if start is None or end is None or not trace_id or not span_id or end < start:
        return None
    return Span(
        trace_id,
        span_id,
        _id(span.get("parentSpanId", span.get("parent_span_id"))),
        str(span.get("name", ""))[:_MAX_TEXT],
        service,
        start,
        end,
        _attributes(span.get("attributes")),
    )


def _ns(value: Any) -> int | None:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 < number < _MAX_NS else None


def _id(value: Any) -> str:
    """An id in hexadecimal, or nothing: OTLP JSON writes hex, plain protobuf JSON writes base64."""
    text = value.lower() if isinstance(value, str) else ""
    if not text or set(text) == {"0"}:
        return ""
    if len(text) in _ID_LENGTHS and set(text) <= _HEX:
        return text
    try:
        return base64.b64decode(value, validate=True).hex()
    except (binascii.Error, ValueError):
        return ""


def _attributes(pairs: Any) -> dict[str, Any]:
    found = {}
    for pair in _list(pairs):
        if isinstance(pair, Mapping) and isinstance(pair.get("key"), str):
            found[pair["key"]] = _value(pair.get("value"))
    return found


def _value(value: Any) -> Any:
    if not isinstance(value, Mapping) or not value:
        return None
    kind, inner = next(iter(value.items()))
    return _KINDS.get(kind, lambda _: None)(inner)


def _array(value: Any) -> list[Any]:
    items = value.get("values") if isinstance(value, Mapping) else None
    return [_value(item) for item in _list(items)]


def _integer(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _double(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _kinds() -> dict[str, Any]:
    kinds = {
        "stringValue": lambda v: v if isinstance(v, str) else None,
        "boolValue": lambda v: v if isinstance(v, bool) else None,
        "intValue": _integer,
        "doubleValue": _double,
        "arrayValue": _array,
    }
    snake = {"".join(f"_{c.lower()}" if c.isupper() else c for c in k): v for k, v in kinds.items()}
    return {**kinds, **snake}


_KINDS: Final = _kinds()


# --- Jaeger -------------------------------------------------------------------------------------


def _jaeger(found: list[Any]) -> Iterator[Span | None]:
    for trace in found:
        if not isinstance(trace, Mapping):
            yield None
            continue
        processes = trace.get("processes")
        for span in _list(trace.get("spans")):
            yield _jaeger_span(span, processes if isinstance(processes, Mapping) else {})


def _jaeger_span(span: Any, processes: Mapping[str, Any]) -> Span | None:
    """Jaeger counts microseconds."""
    if not isinstance(span, Mapping):
        return None
    start, took = _ns(span.get("startTime")), _integer(span.get("duration"))
    trace_id, span_id = _jaeger_id(span.get("traceID"), 32), _jaeger_id(span.get("spanID"), 16)
    if start is None or took is None or took < 0 or not trace_id or not span_id:
        return None
    process = processes.get(str(span.get("processID")))
    service = process.get("serviceName", "") if isinstance(process, Mapping) else ""
    return Span(
        trace_id,
        span_id,
        _jaeger_parent(span.get("references")),
        str(span.get("operationName", ""))[:_MAX_TEXT],
        str(service)[:_MAX_TEXT],
        start * 1000,
        (start + took) * 1000,
        {
            tag["key"]: tag.get("value")
            for tag in _list(span.get("tags"))
            if isinstance(tag, Mapping) and isinstance(tag.get("key"), str)
        },
    )


def _jaeger_id(value: Any, length: int) -> str:
    """Jaeger may leave out leading zeros; a trace id may be half as long."""
    text = value.lower() if isinstance(value, str) else ""
    if not text.strip("0") or len(text) > length or not set(text) <= _HEX:
        return ""
    return text.zfill(length)


def _jaeger_parent(references: Any) -> str:
    for each in _list(references):
        if isinstance(each, Mapping) and each.get("refType") == "CHILD_OF":
            return _jaeger_id(each.get("spanID"), 16)
    return ""
