"""Requests served under a fake clock, and the OTLP JSON that the flight recorder makes of them."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import llm_trace
from llm_trace.diagnosis.verdict import judge
from llm_trace.observers.flight import FlightRecorder
from llm_trace.observers.spans import SpanObserver
from llm_trace.testing import (
    FakeClock,
    Recorder,
    drive,
    response_body,
    response_start,
    scripted,
    sse,
)

MS = 1_000_000
ASKED = b'{"model": "qwen", "stream": true}'
HELLO = sse({"choices": [{"index": 0, "delta": {"content": "Hi"}}]})


class Told:
    """Serves requests; keeps their records and the recorder's document."""

    def __init__(self, size=8):
        self.clock = FakeClock()
        self.records = Recorder()
        spans = SpanObserver(lambda: None, limit=1024, latency=True, judge=judge)
        self.flights = FlightRecorder(size, spans, "app")

    def serve(self, *steps):
        """One request that takes these steps."""
        app = scripted(self.clock, *steps)
        with suppress(RuntimeError, asyncio.CancelledError):
            asyncio.run(drive(app, self.records, self.flights, body=ASKED, clock=self.clock))

    @property
    def document(self):
        """OTLP JSON."""
        return self.flights.show()


class Rag:
    """What a RAG app does, as steps; phases are entered while the request is served."""

    def __init__(self):
        self.open = None

    def enter(self, make):
        """A step that enters what `make` gives."""

        def step():
            self.open = make().__enter__()

        return step

    def leave(self):
        """Leave it."""
        self.open.__exit__(None, None, None)

    def mark(self, moment):
        """A step that stamps a moment of the engine."""
        return lambda: self.open.mark(moment)

    def usage(self):
        """Say what the engine counted."""
        self.open.usage(input_tokens=100, cached_tokens=64, output_tokens=3)


def rag(*, retrieval=12, queue=901, prefill=20, first_token=2, decode=60, ends=None):
    """The steps of a RAG request, in ms: one answer of three tokens."""
    app = Rag()
    before = [
        *(2 * MS, llm_trace.admitted, app.enter(lambda: llm_trace.retrieval("wiki"))),
        *(retrieval * MS, app.leave, 3 * MS),
        *(app.enter(lambda: llm_trace.engine_call("chat", "qwen")), MS),
        *(app.mark("queued"), queue * MS),
    ]
    if ends is not None:
        return [*before, ends]
    return [
        *before,
        *(app.mark("scheduled"), prefill * MS, app.mark("first_token"), app.usage),
        *(first_token * MS, response_start("text/event-stream"), HELLO),
        *(decode // 2 * MS, HELLO, decode // 2 * MS, HELLO),
        *(app.mark("last_token"), MS, app.leave, sse("[DONE]"), response_body()),
    ]
