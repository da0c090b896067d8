"""Private exporters: begun where a process serves, ended within a bounded time."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter

from llm_trace.core import faults
from llm_trace.core.clock import SYSTEM
from llm_trace.observers.endpoint import Endpoint
from llm_trace.observers.sdk.exporters import metric_exporter, span_exporter
from llm_trace.observers.sdk.metrics import reader_of
from llm_trace.observers.sdk.origin import resource
from llm_trace.observers.sdk.provider import ProviderSink
from llm_trace.observers.sdk.queue import QueueSink, TraceExporter, TraceQueue
from llm_trace.observers.variables import Signal


class Pipeline:
    """Private exporters, and their end within a bounded time."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._flushes: list[Callable[[], object]] = []
        self._shutdowns: list[Callable[[], object]] = []
        self._pid = os.getpid()
        atexit.register(self.shutdown)

    def add_spans(self, endpoint: Endpoint) -> ProviderSink:
        """Export spans to `endpoint`; the private sink that takes them."""
        _announce("spans", endpoint)
        return self.add_exporter(span_exporter(endpoint))

    def add_exporter(self, exporter: SpanExporter, room: int | None = None) -> QueueSink:
        """Export spans by `exporter`, of which `room` may wait: OTEL_BSP_MAX_QUEUE_SIZE if None."""
        provider = TracerProvider(resource=resource(), shutdown_on_exit=False)
        queue = TraceQueue(TraceExporter(exporter, provider), room)
        self._flushes.append(queue.force_flush)
        self._shutdowns.append(queue.shutdown)
        return QueueSink(provider, queue)

    def add_metrics(self, endpoint: Endpoint, families: Callable[[], Iterable[Any]]) -> None:
        """Export what `families` gives to `endpoint`, every OTEL_METRIC_EXPORT_INTERVAL."""
        reader = reader_of(metric_exporter(endpoint), resource(), families)
        self._flushes.append(reader.collect)
        self._shutdowns.append(reader.shutdown)
        _announce("metrics", endpoint)

    def flush(self) -> None:
        """Send what is queued, within the time limit."""
        _within(self._timeout, self._flushes)

    def shutdown(self) -> None:
        """Send what is queued and stop, within the time limit, even while a retry sleeps."""
        atexit.unregister(self.shutdown)
        if self._pid == os.getpid():  # a forked child has no part in what its parent queued
            _within(self._timeout, self._shutdowns)


def rehearse(signal: Signal, endpoint: Endpoint) -> None:
    """Make what would export `signal` to `endpoint`, and let it go; nothing is sent.

    Raises:
        Exception: OpenTelemetry cannot use one of its variables, or is not installed whole.
    """
    if signal == "metrics":
        metric_exporter(endpoint).shutdown()
    else:
        provider = TracerProvider(shutdown_on_exit=False)
        queue = TraceQueue(TraceExporter(span_exporter(endpoint), provider))
        queue.shutdown()  # type: ignore[no-untyped-call]


def _announce(what: str, endpoint: Endpoint) -> None:
    faults.log().info("llm_trace: %s go to %s over %s.", what, endpoint.shown, endpoint.protocol)


def _within(seconds: float, calls: Iterable[Callable[[], object]]) -> None:
    """Run `calls` side by side and wait at most `seconds` for all of them."""
    threads = [threading.Thread(target=_quietly, args=(c,), daemon=True) for c in calls]
    for thread in threads:
        thread.start()
    deadline = SYSTEM.monotonic_ns() + round(seconds * 1e9)
    for thread in threads:
        thread.join(max(0, deadline - SYSTEM.monotonic_ns()) / 1e9)


def _quietly(call: Callable[[], object]) -> None:
    try:
        call()
    except Exception:  # noqa: BLE001 - a collector that is down must not make the exit fail
        faults.internal["shutdown"] += 1
