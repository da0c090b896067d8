"""A span sink that keeps what it is given, with ids that count up."""

from __future__ import annotations

from itertools import count

from opentelemetry.trace import SpanKind

from llm_trace.core import timeline
from llm_trace.observers import spans
from llm_trace.observers.spans import SpanObserver
from llm_trace.observers.tracer import OtelTracer
from llm_trace.testing import WALL

TRACE = 0x7AACE
REMOTE_TRACE, REMOTE_SPAN = 0xABC, 0xDEF
MS = 1_000_000


class SpanRecorder:
    """A provider as far as finished spans need one; ids are 1, 2, 3 and so on."""

    def __init__(self, *, sampled=True, state=None):
        self.spans = []
        self.sampled, self.state = sampled, state
        self.asked = []
        self._ids = count(1)

    def new_trace_id(self):
        """Always the same trace."""
        return TRACE

    def new_span_id(self):
        """The next id."""
        return next(self._ids)

    def sample(self, parent, trace_id, name, kind):
        """The answer that was asked for."""
        self.asked.append((parent, trace_id, name, kind))
        return self.sampled, self.state

    def emit(self, trace):
        """Keep the spans of a trace."""
        made = list(trace)
        assert len(trace) == len(made)
        self.spans += made

    def tracer(self):
        """A tracer over this sink."""
        return OtelTracer(lambda: self)

    def observer(self, *, limit=1024, latency=False, expect=None):
        """An observer that makes spans for this sink."""
        return SpanObserver(lambda: self, limit=limit, latency=latency, expect=expect)

    def told(self):
        """Every span as a dict, times in ms; a parent is named, or `root`."""
        names = {span.context.span_id: span.name for span in self.spans[:-1]}
        if self.spans:
            names[self.spans[-1].context.span_id] = "root"
        return [_told(span, names) for span in self.spans]


def _told(span, names):
    parent = span.parent and names.get(span.parent.span_id, f"{span.parent.span_id:#x}")
    facts = {
        "name": span.name,
        "parent": parent,
        "kind": None if span.kind is SpanKind.INTERNAL else span.kind.name,
        "from": (span.start - WALL) / MS,
        "to": (span.end - WALL) / MS,
        "failed": span.failed or None,
    }
    kept = {k: v for k, v in facts.items() if v is not None}
    return {**kept, "attributes": dict(span.attributes)}


def number_ids(monkeypatch):
    """Make the ids that are drawn at random count up from 0x100."""
    ids = count(0x100)
    monkeypatch.setattr(spans, "random_span_id", lambda: next(ids))
    monkeypatch.setattr(timeline.random, "getrandbits", lambda _bits: next(ids))
