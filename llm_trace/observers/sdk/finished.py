"""Finished spans as the SDK has them, within the limits of its provider."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Status, StatusCode

from llm_trace.observers.sdk.origin import SCOPE
from llm_trace.observers.sink import FinishedSpan
from llm_trace.observers.values import Value

_UNSET: Final = Status(StatusCode.UNSET)
_ERROR: Final = Status(StatusCode.ERROR)


class Limits:
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


def readable(span: FinishedSpan, resource: Resource, limits: Limits) -> ReadableSpan:
    """`span` as the SDK's processors and exporters take it."""
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
