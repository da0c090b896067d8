"""Holds back the spans that others end inside a request, until its trace is kept or not.

Where spans go through a provider of the app's own, spans of other instrumentations would be
exported while the request still runs, and stay as orphans of a trace that is left out. So the
provider's processors get a gate before them, and the gate waits for the request's end.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, TraceState

from llm_trace.observers.sink import SpanSink, Trace

MAX_SPANS: Final = 512
"""Spans of one trace that wait; a trace with more is kept as it is."""
MAX_TRACES: Final = 4096
"""Traces that wait, and traces that are remembered as left out."""

_OURS: Final = "llm_trace."

Waiting = tuple[Callable[[Any], None], Any]
"""A processor's `on_end`, and the span for it."""


class _Open:
    """A trace with requests that still run here."""

    __slots__ = ("kept", "requests", "waiting")

    def __init__(self) -> None:
        self.requests = 0
        self.kept = False
        self.waiting: list[Waiting] = []


class Held:
    """The spans that wait, by trace; bounded."""

    def __init__(self) -> None:
        self._open: OrderedDict[int, _Open] = OrderedDict()
        self._left_out: OrderedDict[int, None] = OrderedDict()
        self._lock = threading.RLock()
        self._gates: object = None
        """The processors as they were when each had a gate."""

    def open(self, trace_id: int) -> None:
        """A request of this trace begins."""
        with self._lock:
            self._left_out.pop(trace_id, None)
            self._open.setdefault(trace_id, _Open()).requests += 1
            if len(self._open) > MAX_TRACES:  # requests whose end never came
                _release(self._open.popitem(last=False)[1])

    def settle(self, trace_id: int, kept: bool) -> None:  # noqa: FBT001 - the sampler's word
        """A request of this trace is over; its spans are exported if any of its requests' are."""
        with self._lock:
            trace = self._open.get(trace_id)
            if trace is None:
                return
            trace.requests -= 1
            trace.kept = trace.kept or kept
            if trace.kept:
                _release(trace)
            if trace.requests > 0:
                return
            del self._open[trace_id]
            if not trace.kept:
                self._left_out[trace_id] = None
                if len(self._left_out) > MAX_TRACES:
                    self._left_out.popitem(last=False)

    def takes(self, span: Any, on_end: Callable[[Any], None]) -> bool:
        """Whether a span that ended is held, or belongs to a trace that was left out."""
        trace_id = span.context.trace_id
        with self._lock:
            trace = self._open.get(trace_id)
            if trace is None:
                return trace_id in self._left_out
            if trace.kept:
                return False
            trace.waiting.append((on_end, span))
            if len(trace.waiting) > MAX_SPANS:
                trace.kept = True
                _release(trace)
            return True

    def gate(self, provider: Any) -> None:
        """Put a gate before each processor of the app's provider that has none of ours yet.

        The SDK has no public way to reach them; where a version keeps them otherwise, spans of
        others are exported as ever.
        """
        processors = getattr(provider, "_active_span_processor", None)
        listed = getattr(processors, "_span_processors", None)
        if listed is self._gates or not isinstance(listed, tuple):
            return
        with getattr(processors, "_lock", nullcontext()):  # the app may add one at this moment
            self._gates = tuple(map(self._gated, processors._span_processors))  # type: ignore[union-attr]  # noqa: SLF001
            processors._span_processors = self._gates  # type: ignore[union-attr]  # noqa: SLF001

    def _gated(self, processor: Any) -> Any:
        if isinstance(processor, _Gate):
            is_done = processor.held is self  # not where it is another app's
        else:
            is_done = type(processor).__module__.startswith(_OURS)  # one that only looks
        return processor if is_done else _Gate(processor, self)


def _release(trace: _Open) -> None:
    for on_end, span in trace.waiting:
        on_end(span)
    trace.waiting.clear()


class _Gate:
    """A processor whose spans may have to wait."""

    def __init__(self, processor: Any, held: Held) -> None:
        self._processor = processor
        self.held = held

    def on_end(self, span: Any) -> None:
        if not self.held.takes(span, self._processor.on_end):
            self._processor.on_end(span)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._processor, name)


class HoldingSink:
    """A sink over the app's provider, which says when a request begins."""

    def __init__(self, sink: SpanSink, held: Held, provider: object) -> None:
        self._sink = sink
        self._held = held
        self._provider = provider
        self.new_trace_id = sink.new_trace_id
        self.new_span_id = sink.new_span_id
        self.emit: Callable[[Trace], None] = sink.emit
        self.takes_all = sink.takes_all

    def sample(
        self, parent: Context | None, trace_id: int, name: str, kind: SpanKind
    ) -> tuple[bool, TraceState | None]:
        """Ask the provider's sampler; what it takes waits for its request's end."""
        sampled, state = self._sink.sample(parent, trace_id, name, kind)
        if sampled:
            self._held.gate(self._provider)
            self._held.open(trace_id)
        return sampled, state
