"""The port between what we know of spans and the provider that samples and exports them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from opentelemetry.context import Context
from opentelemetry.trace import SpanContext, SpanKind, TraceState

from llm_trace.observers.values import Value


class FinishedSpan(NamedTuple):
    """A span made once, from known stamps, when its request is over; stamps in Unix ns."""

    name: str
    context: SpanContext
    parent: SpanContext | None
    kind: SpanKind
    start: int
    end: int
    attributes: Mapping[str, Value]
    failed: bool = False


class Trace(Protocol):
    """The spans of one request, made when they are asked for."""

    def __len__(self) -> int:
        """How many they are."""

    def __iter__(self) -> Iterator[FinishedSpan]:
        """The spans, children first."""


class SpanSink(Protocol):
    """A provider, as far as finished spans need one."""

    takes_all: bool
    """Whether its sampler takes every trace that begins here."""

    def new_trace_id(self) -> int:
        """A trace id by the provider's generator."""

    def new_span_id(self) -> int:
        """A span id by the provider's generator."""

    def sample(
        self, parent: Context | None, trace_id: int, name: str, kind: SpanKind
    ) -> tuple[bool, TraceState | None]:
        """Whether the provider's sampler takes the trace, and the trace state it sets."""

    def emit(self, trace: Trace) -> None:
        """Take the spans of a sampled request, now or when they are exported."""
