"""From requests to those who listen: records to observers, live requests to gauges.

Knows no telemetry library: the tracer and the observers are handed in by the composition root.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

from llm_trace.core import engines, faults
from llm_trace.core.record import RequestRecord
from llm_trace.core.timeline import Timeline
from llm_trace.core.tracer import NO_TRACER, Tracer


class Observer(Protocol):
    """Hears of every finished request, once."""

    def observe(self, record: RequestRecord) -> None:
        """Take `record`; a fault is contained by the caller."""


class Dispatch:
    """Delivers records; one observer's fault never costs another its record.

    Args:
        tracer: Gives requests their ids and makes spans current.
        observers: Hear of every finished request.
        flush: Sends what is queued, in bounded time; called when the server stops.
        on_lag: Told how late each timer of an event loop ran, ns; None: loops are not watched.
        sample: Decides about the trace of a finished request, before any observer hears of it.
        start: Opens what a process needs once; called when a server begins to serve.
    """

    __slots__ = ("__weakref__", "flush", "live", "observers", "on_lag", "sample", "start", "tracer")

    def __init__(
        self,
        tracer: Tracer = NO_TRACER,
        observers: Iterable[Observer] = (),
        flush: Callable[[], None] = lambda: None,
        on_lag: Callable[[int], None] | None = None,
        start: Callable[[], None] = lambda: None,
        sample: Callable[[RequestRecord], RequestRecord] | None = None,
    ) -> None:
        self.tracer = tracer
        self.observers = tuple(observers)
        self.flush = flush
        self.on_lag = on_lag
        self.start = start
        self.sample = sample
        self.live: set[Timeline] = set()
        """Requests in flight; gauges are counted from it when they are read."""
        engines.watch(self)

    def deliver(self, record: RequestRecord) -> None:
        """Hand `record` to every observer."""
        if self.sample is not None:
            record = self._sampled(record, self.sample)
        for observer in self.observers:
            try:
                observer.observe(record)
            except Exception as error:  # noqa: BLE001 - rule 1: never hurt the host
                faults.contain(type(observer).__name__, error)

    def _sampled(
        self, record: RequestRecord, sample: Callable[[RequestRecord], RequestRecord]
    ) -> RequestRecord:
        try:
            return sample(record)
        except Exception as error:  # noqa: BLE001 - rule 1: never hurt the host
            faults.contain("sampling", error)
            return record

    def live_phases(self) -> Counter[str]:
        """How many requests are in each phase now."""
        return Counter(timeline.live_phase() for timeline in tuple(self.live))
