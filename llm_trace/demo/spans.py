"""Spans as the demo reads them back from OTLP, and a trace as a tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from llm_trace import semconv

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SERVICE_NAME: Final = "service.name"


@dataclass(frozen=True, slots=True)
class Span:
    """One received span."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    service: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]

    @property
    def seconds(self) -> float:
        """How long it lasted."""
        return (self.end_ns - self.start_ns) / 1e9

    @property
    def is_root(self) -> bool:
        """Whether it is llm_trace's span for a whole request."""
        return semconv.OUTCOME in self.attributes


def decode(body: bytes) -> Iterator[Span]:
    """Read the spans of one OTLP export request."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (  # noqa: PLC0415 - slow, or absent here
        ExportTraceServiceRequest,
    )

    for group in ExportTraceServiceRequest.FromString(body).resource_spans:
        service = str(_attributes(group.resource.attributes).get(SERVICE_NAME, ""))
        for scope in group.scope_spans:
            for span in scope.spans:
                yield _span(span, service)


def _span(span: Any, service: str) -> Span:
    return Span(
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.name,
        service,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _attributes(span.attributes),
    )


def _attributes(pairs: Iterable[Any]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind) if kind else None


def tree(spans: Iterable[Span]) -> Iterator[tuple[int, Span]]:
    """Walk depth first, by start, with each span's depth; an absent parent makes a top span."""
    ordered = sorted(spans, key=lambda span: (span.start_ns, -span.end_ns, span.span_id))
    known = {span.span_id for span in ordered}
    children: dict[str, list[Span]] = {}
    for span in ordered:
        children.setdefault(span.parent_id if span.parent_id in known else "", []).append(span)
    return _walk(children, "", 0)


def _walk(children: dict[str, list[Span]], parent: str, depth: int) -> Iterator[tuple[int, Span]]:
    for span in children.pop(parent, ()):
        yield depth, span
        yield from _walk(children, span.span_id, depth + 1)
