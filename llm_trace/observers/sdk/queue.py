"""Whole traces on their way out: queued as they are, made into spans where they are exported."""

from __future__ import annotations

from collections.abc import Sequence
from time import sleep
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanContext, TraceFlags

from llm_trace.core import faults
from llm_trace.observers.sdk.finished import Limits, readable
from llm_trace.observers.sdk.provider import ProviderSink
from llm_trace.observers.sink import Trace

_SPANS_A_TRACE: Final = 8
"""By which the SDK's batch size, in spans, becomes one in traces; exports keep to the former."""


class _Queued:
    """A trace in the queue, which asks of what it holds only whether it is sampled: ours are."""

    __slots__ = ("trace",)
    context: Final = SpanContext(1, 1, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    def __init__(self, trace: Trace) -> None:
        self.trace = trace


class TraceExporter(SpanExporter):
    """Makes the spans of queued traces, sends them, and counts what could not be sent."""

    def __init__(self, exporter: SpanExporter, provider: TracerProvider) -> None:
        self._exporter = exporter
        self._resource = provider.resource
        self._limits = Limits(provider)
        self.most = BatchSpanProcessor._default_max_export_batch_size()  # type: ignore[no-untyped-call]  # noqa: SLF001
        """Spans of one export."""
        self.done = 0
        """Spans that left the queue."""

    def export(self, spans: Sequence[Any]) -> SpanExportResult:
        """Send the spans of `spans`, which are queued traces.

        Raises:
            Exception: What the exporter raised last; all others were tried all the same.
        """
        self.done += sum(len(queued.trace) for queued in spans)
        made = [span for queued in spans for span in self._made(queued.trace)]
        raised: Exception | None = None
        for first in range(0, len(made), self.most):
            try:
                self._send(made[first : first + self.most])
            except Exception as error:  # noqa: BLE001 - it is raised again, and logged by the SDK
                raised = error
        if raised is not None:
            raise raised
        return SpanExportResult.SUCCESS

    def _made(self, trace: Trace) -> list[ReadableSpan]:
        sleep(0)  # the event loop goes first: else it waits 5 ms, the interpreter's switch interval
        try:
            return [readable(span, self._resource, self._limits) for span in trace]
        except Exception as error:  # noqa: BLE001 - a trace that cannot be made costs no other
            faults.contain("SpanObserver", error)
            return []

    def _send(self, spans: Sequence[ReadableSpan]) -> None:
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            if result is not SpanExportResult.SUCCESS:
                faults.spans["export_failed"] += len(spans)

    def shutdown(self) -> None:
        """End the exporter."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flush the exporter."""
        return self._exporter.force_flush(timeout_millis)


class TraceQueue(BatchSpanProcessor):
    """A batch processor of whole traces; counts and refuses what it has no room for.

    One item a request, whose spans are made in the background: that is cheaper for the request, and
    a record takes less memory than its spans. Room is counted in spans all the same.
    """

    def __init__(self, exporter: TraceExporter, room: int | None = None) -> None:
        self._exporter = exporter
        self._taken = 0
        self._room: int = room or BatchSpanProcessor._default_max_queue_size()  # type: ignore[no-untyped-call]  # noqa: SLF001
        batch = max(1, min(exporter.most // _SPANS_A_TRACE, self._room))
        super().__init__(exporter, max_queue_size=self._room, max_export_batch_size=batch)

    def take(self, trace: Trace) -> None:
        """Queue a trace, or refuse it."""
        number = len(trace)
        if self._taken + number - self._exporter.done > self._room:
            faults.spans["queue_full"] += number
            return
        self._taken += number
        self.on_end(_Queued(trace))  # type: ignore[arg-type]


class QueueSink(ProviderSink):
    """The private provider's sink: traces go into the queue as they are."""

    def __init__(self, provider: TracerProvider, queue: TraceQueue) -> None:
        super().__init__(provider)
        self.emit = queue.take  # type: ignore[method-assign]
        self.flush = queue.force_flush
        """Sends what is queued, however long that takes."""
