"""What the field-report tests share: a traced app, its spans and its metrics, driven in process."""

from __future__ import annotations

import asyncio

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from llm_trace import semconv as s
from llm_trace.asgi.middleware import LedgerMiddleware
from llm_trace.core.dispatch import Dispatch
from llm_trace.observers.metrics import Instruments
from llm_trace.observers.recorder import MetricsObserver
from llm_trace.observers.sdk.provider import ProviderSink
from llm_trace.observers.spans import SpanObserver
from llm_trace.observers.tracer import OtelTracer
from llm_trace.settings import Settings
from llm_trace.testing import FakeClock, Server, http_scope

MS = 1_000_000
TOKEN = b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'
DONE = b"data: [DONE]\n\n"


class Traced:
    """An app under the middleware with real spans and metrics of its own, on a fake clock."""

    def __init__(self, app, *, sampler=None, **settings):
        self.clock = FakeClock()
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        sink = ProviderSink(self.provider)
        self._instruments = Instruments()
        observers = (
            SpanObserver(lambda: sink, limit=1024, latency=True),
            MetricsObserver(self._instruments),
        )
        self.dispatch = Dispatch(OtelTracer(lambda: sink), observers)
        self.app = LedgerMiddleware(
            app, settings=Settings(**settings), dispatch=self.dispatch, clock=self.clock.clock
        )

    def ask(self, path="/v1/chat/completions", *, body=b'{"stream": true}', chunks=(), **scope):
        """One request; the server that drove it, with what the app raised as `fault`."""
        server = Server(body, chunks)
        server.fault = None
        try:
            asyncio.run(self.app(http_scope(path, **scope), server.receive, server.send))
        except Exception as fault:  # noqa: BLE001 - a server sees whatever comes
            server.fault = fault
        return server

    def spans(self):
        """Every finished span."""
        return self._exporter.get_finished_spans()

    def roots(self):
        """Ours of whole requests."""
        return [
            span
            for span in self.spans()
            if span.instrumentation_scope.name == s.SCOPE and s.HTTP_METHOD in span.attributes
        ]

    @property
    def root(self):
        """The only one."""
        (root,) = self.roots()
        return root

    def samples(self, name):
        """The samples of a series that are not zero, by their labels' values."""
        return {
            tuple(sample.labels.values()): sample.value
            for family in self._instruments.collect()
            for sample in family.samples
            if sample.name == name and sample.value
        }

    def total(self, name):
        """The sum of a series."""
        return sum(self.samples(name).values())


def seconds(span):
    """How long a span took."""
    return (span.end_time - span.start_time) / 1e9
