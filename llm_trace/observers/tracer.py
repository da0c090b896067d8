"""Gives a running request its ids, its parent and its place in the ambient context.

The parent comes from the request's own headers, or from a local server span of this same request;
never from whatever span happens to be current, never from the environment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from opentelemetry import baggage, propagate, trace
from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter, TextMapPropagator
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags, TraceState

from llm_trace.core.identity import TraceIdentity
from llm_trace.core.tracer import W3C, Headers
from llm_trace.observers.sink import SpanSink

MAX_TRACEPARENT: Final = 512
"""A longer one is not handed to the propagator, which would log a warning for each request."""

_NO_FORMATS: Final = frozenset({b"baggage", b"sentry-trace"})
"""What propagators read and is no place in a trace, or is read by another SDK too."""

_BAGGAGE: Final = otel_context.create_key("llm_trace.baggage")
"""In an ambient context: the inbound baggage that was put there, once a request."""

_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_UNSAMPLED: Final = TraceFlags(TraceFlags.DEFAULT)


class _HeaderGetter(Getter[Mapping[str, list[str]]]):
    def get(self, carrier: Mapping[str, list[str]], key: str) -> list[str] | None:
        return carrier.get(key.lower())

    def keys(self, carrier: Mapping[str, list[str]]) -> list[str]:
        return list(carrier)


_GETTER: Final = _HeaderGetter()


class _Curious(_HeaderGetter):
    """Has nothing, and remembers what it was asked for."""

    def __init__(self, propagator: TextMapPropagator) -> None:
        self.asked: set[str] = set()
        self.listed = False
        """Whether it was asked for all that there is."""
        propagator.extract({}, context=Context(), getter=self)

    def get(self, carrier: Mapping[str, list[str]], key: str) -> list[str] | None:  # noqa: ARG002
        self.asked.add(key)
        return None

    def keys(self, carrier: Mapping[str, list[str]]) -> list[str]:
        self.listed = True
        return super().keys(carrier)


def _names(of: set[str]) -> frozenset[bytes]:
    return frozenset(name.lower().encode("latin-1") for name in of)


def _formats_of(propagator: TextMapPropagator, curious: _Curious) -> frozenset[bytes]:
    """Every header that `propagator` writes or reads a place in a trace from.

    What it says that it writes is less than what it reads: B3 in one header is read by the
    propagator that writes it in many.
    """
    more = _names(curious.asked | set(propagator.fields)) - W3C - _NO_FORMATS
    return W3C | more if more else W3C


def _carrier(headers: Headers) -> dict[str, list[str]]:
    carrier: dict[str, list[str]] = {}
    for name, value in headers:
        carrier.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    parents = carrier.get("traceparent", ())
    if len(parents) > 1 or any(len(parent) > MAX_TRACEPARENT for parent in parents):
        del carrier["traceparent"]  # two parents are no parent, and a long one is none
    return carrier


def span_context(
    trace_id: int, span_id: int, *, sampled: bool, remote: bool = False, state: str = ""
) -> SpanContext:
    """The API's context of one of our spans."""
    return SpanContext(
        trace_id,
        span_id,
        is_remote=remote,
        trace_flags=_SAMPLED if sampled else _UNSAMPLED,
        trace_state=TraceState.from_header([state]) if state else None,
    )


class OtelTracer:
    """The tracer port over the OpenTelemetry API.

    Args:
        find_sink: The provider that samples and makes ids, once there is one.
    """

    def __init__(self, find_sink: Callable[[], SpanSink | None]) -> None:
        self._find_sink = find_sink
        self._propagator: TextMapPropagator | None = None
        self._formats = W3C
        self._read: frozenset[bytes] | None = None
        """Without one of these headers nothing is inbound; None: there may be all the same."""

    def begin(self, headers: Headers, name: str) -> TraceIdentity | None:
        """The identity of a new request; None without a provider."""
        sink = self._find_sink()
        if sink is None:
            return None
        inbound = self._inbound(headers)
        remote = trace.get_current_span(inbound).get_span_context()
        local = _local_server_span(remote)
        parent = local or (remote if remote.is_valid else None)
        trace_id = parent.trace_id if parent else sink.new_trace_id()
        context = trace.set_span_in_context(NonRecordingSpan(parent), Context()) if parent else None
        sampled, state = sink.sample(context, trace_id, name, SpanKind.SERVER)
        return TraceIdentity(
            trace_id=trace_id,
            span_id=sink.new_span_id(),
            parent_span_id=parent.span_id if parent else 0,
            parent_is_remote=local is None,
            sampled=sampled,
            trace_state=state.to_header() if state else "",
            owns_server_span=local is None,
            baggage=baggage.get_all(inbound),
        )

    def _inbound(self, headers: Headers) -> Context:
        """What the request's headers say of the trace that it is part of."""
        self.formats()
        if self._read is not None and self._read.isdisjoint([name.lower() for name, _ in headers]):
            return Context()
        return propagate.extract(_carrier(headers), context=Context(), getter=_GETTER)

    def activate(self, identity: TraceIdentity, span_id: int = 0) -> object:
        """Make the root, or `span_id` of the same trace, current for inner instrumentation."""
        current = NonRecordingSpan(_context_of(identity, span_id))
        context = trace.set_span_in_context(current)
        if identity.baggage and context.get(_BAGGAGE) is not identity.baggage:
            context = _with_baggage(identity.baggage, context)
        return otel_context.attach(context)

    def deactivate(self, token: Any) -> None:
        """Undo `activate`.

        A generator may be closed from another task; `context.detach` would log an error then,
        where there is nothing to undo.
        """
        if token is None:
            return
        try:  # noqa: SIM105 - `suppress` costs more than all the rest
            token.var.reset(token)
        except ValueError:
            pass

    def formats(self) -> frozenset[bytes]:
        """W3C's, and those of `OTEL_PROPAGATORS` or of the propagator that the app has set."""
        propagator = propagate.get_global_textmap()
        if propagator is not self._propagator:
            curious = _Curious(propagator)
            self._formats = _formats_of(propagator, curious)
            self._read = None if curious.listed else _names(curious.asked)
            self._propagator = propagator
        return self._formats

    def headers(self, identity: TraceIdentity, span_id: int = 0) -> Mapping[str, str]:
        """By the propagators; W3C always, which engines read whatever the app has set."""
        headers = identity.headers(span_id)
        formats = self.formats()
        if formats is not W3C:
            injected: dict[str, str] = {}
            span = NonRecordingSpan(_context_of(identity, span_id))
            propagate.inject(injected, trace.set_span_in_context(span, Context()))
            told = {name.lower(): value for name, value in injected.items()}
            headers.update((k, v) for k, v in told.items() if k.encode("latin-1") in formats)
        return headers


def _with_baggage(entries: Mapping[str, object], context: Context) -> Context:
    """`context` with what came in; what the app makes of it from there on is the app's."""
    for key, value in entries.items():
        context = baggage.set_baggage(key, value, context)
    return otel_context.set_value(_BAGGAGE, entries, context)


def _context_of(identity: TraceIdentity, span_id: int) -> SpanContext:
    return span_context(
        identity.trace_id,
        span_id or identity.span_id,
        sampled=identity.sampled,
        state=identity.trace_state,
    )


def _local_server_span(remote: SpanContext) -> SpanContext | None:
    """The current span, if it is the live server span that another layer made for this request.

    On a kept-alive connection the ambient span may be a stale one: ours must be recording, of kind
    SERVER, and have the very parent that this request's headers name.
    """
    span: Any = trace.get_current_span()
    if not span.is_recording() or getattr(span, "kind", None) is not SpanKind.SERVER:
        return None
    parent = getattr(span, "parent", None)
    expected = (remote.trace_id, remote.span_id) if remote.is_valid else None
    actual = (parent.trace_id, parent.span_id) if parent is not None else None
    context: SpanContext = span.get_span_context()
    return context if actual == expected else None
