"""Spans of others share the fate of their trace, through a provider of the app's own."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

import llm_trace
from llm_trace import semconv as s
from llm_trace.observers import held as module
from llm_trace.observers.held import Held
from llm_trace.setup import apps_provider, composition
from llm_trace.testing import Server, http_scope

CHAT = "/v1/chat/completions"
TOKENS = b'data: {"choices": [{"delta": {"content": "a"}}]}\n\ndata: [DONE]\n\n'


@pytest.fixture
def exporter(monkeypatch):
    """What a provider of the app's own exports."""
    monkeypatch.setattr(composition, "_dispatches", {})
    return provide(monkeypatch, TracerProvider(shutdown_on_exit=False))


def provide(monkeypatch, provider):
    """Make it the app's own; its exporter."""
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    apps_provider._sink_of.cache_clear()
    return exporter


async def chat(request):
    """Answer, inside a span that the app makes itself; fail where that is asked."""
    tracer = trace.get_tracer_provider().get_tracer("app")
    with tracer.start_as_current_span("lookup"):
        pass
    exported = request.app.state.exporter.get_finished_spans()
    request.app.state.during.append([span.name for span in exported])
    if "fail" in request.headers:
        return PlainTextResponse("no", status_code=500)
    return StreamingResponse(iter([TOKENS]), media_type="text/event-stream")


def serving(exporter, **settings):
    """An app that says what was exported while its requests ran."""
    app = Starlette(routes=[Route(CHAT, chat, methods=["POST"])])
    app.state.exporter, app.state.during = exporter, []
    return llm_trace.instrument(app, **settings)


def ask(app, *headers):
    """Send one request."""
    server = Server(b'{"model": "m", "stream": true}')
    asyncio.run(app(http_scope(CHAT, headers=headers), server.receive, server.send))


def names(exporter):
    """What was exported, by name."""
    return sorted(span.name for span in exporter.get_finished_spans())


def test_a_tree_is_kept_or_left_out_as_a_whole(exporter):
    """Neither an inner span without its root nor a root without its inner span."""
    app = serving(exporter, tail_share=0.0)
    ask(app)
    assert names(exporter) == []

    ask(app, (b"fail", b"yes"))
    assert "lookup" in names(exporter)
    root = next(x for x in exporter.get_finished_spans() if s.OUTCOME in x.attributes)
    assert {x.context.trace_id for x in exporter.get_finished_spans()} == {root.context.trace_id}
    assert root.attributes[s.SAMPLING_REASON] == "failed"
    assert root.context.trace_state.get("ot") == "th:0"
    assert app.state.during == [[], []]


def test_without_tail_sampling_nothing_waits(exporter):
    """A span is exported when it ends, as ever."""
    app = serving(exporter)
    ask(app)

    assert app.state.during == [["lookup"]]


def test_spans_outside_of_requests_do_not_wait(exporter):
    """A job of the app's own has a trace of its own."""
    app = serving(exporter, tail_share=0.0)
    ask(app)
    trace.get_tracer_provider().get_tracer("app").start_span("job").end()

    assert names(exporter) == ["job"]


def test_what_ends_after_its_request_shares_its_fate(exporter):
    """A task that the request left behind is part of its trace."""
    provider = trace.get_tracer_provider()
    tracer, tasks = provider.get_tracer("app"), []

    async def leaving(request):
        tasks.append(tracer.start_span("later"))
        return await chat(request)

    app = Starlette(routes=[Route(CHAT, leaving, methods=["POST"])])
    app.state.exporter, app.state.during = exporter, []
    llm_trace.instrument(app, tail_share=0.0)
    ask(app)
    ask(app, (b"fail", b"yes"))
    for task in tasks:
        task.end()

    kept = {x.context.trace_id for x in exporter.get_finished_spans() if s.OUTCOME in x.attributes}
    (later,) = [span for span in exporter.get_finished_spans() if span.name == "later"]
    assert {later.context.trace_id} == kept


def test_what_the_apps_sampler_refuses_does_not_wait(monkeypatch):
    """There is nothing to decide, and nothing is remembered."""
    monkeypatch.setattr(composition, "_dispatches", {})
    exporter = provide(monkeypatch, TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False))
    opened = []
    monkeypatch.setattr(Held, "open", lambda _self, trace_id: opened.append(trace_id))
    ask(serving(exporter, tail_share=0.0))

    assert opened == []


class Span:
    """An ended span of a trace."""

    def __init__(self, trace_id):
        self.context = self
        self.trace_id = trace_id


def ended(held, trace_id, number=1):
    """End spans; those that are exported then."""
    out = []
    for _ in range(number):
        span = Span(trace_id)
        if not held.takes(span, out.append):
            out.append(span)
    return out


def test_two_requests_of_a_trace_share_it():
    """A client may send several under one parent: it is kept if one of them is."""
    held = Held()
    held.open(1)
    held.open(1)
    waiting = ended(held, 1)

    held.settle(1, False)
    assert waiting == []
    held.settle(1, True)
    assert [len(waiting), len(ended(held, 1))] == [1, 1]
    held.settle(1, True)


def test_a_trace_that_was_left_out_may_come_again():
    """A later request under the same parent is decided about anew."""
    held = Held()
    for kept in (False, True):
        held.open(1)
        waiting = ended(held, 1)
        held.settle(1, kept)
        assert len(waiting) == kept


def test_what_waits_is_bounded(monkeypatch):
    """A trace of too many spans is kept as it is, and requests that never end are let go."""
    monkeypatch.setattr(module, "MAX_SPANS", 3)
    monkeypatch.setattr(module, "MAX_TRACES", 2)
    held = Held()
    held.open(1)
    assert len(ended(held, 1, 6)) == 6

    waiting = [ended(held, n) for n in (2, 3, 4) if not held.open(n)]
    assert [len(x) for x in waiting] == [1, 0, 0]
    for number in (3, 4):
        held.settle(number, False)
    assert [len(held._open), len(held._left_out)] == [0, 2]


class Other(SpanProcessor):
    """A processor of a library's."""

    called = ()

    def force_flush(self, timeout_millis=30_000):
        """Note it."""
        self.called = (*self.called, timeout_millis)
        return True


def test_a_gate_passes_everything_else_on():
    """The app's calls reach its processors, and a second gating changes nothing."""
    provider, other, held = TracerProvider(shutdown_on_exit=False), Other(), Held()
    provider.add_span_processor(other)
    for _ in range(2):
        held.gate(provider)
    provider.force_flush(5)

    assert len(other.called) == 1
    assert provider._active_span_processor._span_processors[0]._processor is other
    held.gate(object())


def test_a_processor_that_comes_later_has_a_gate_too(exporter):
    """Some SDKs add theirs at their first use, which is inside a request."""
    app = serving(exporter, tail_share=0.0)
    ask(app)
    late = InMemorySpanExporter()
    trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(late))
    ask(app)
    assert names(late) == []

    ask(app, (b"fail", b"yes"))
    assert names(late) == names(exporter) != []


def test_each_of_two_apps_decides_about_its_own_traces(exporter):
    """With settings of their own, over one provider."""
    apps = [serving(exporter, tail_share=0.0, provider=name) for name in ("one", "two")]
    for app in apps:
        ask(app)
    assert names(exporter) == []

    for app in apps:
        ask(app, (b"fail", b"yes"))
    roots = [x for x in exporter.get_finished_spans() if s.OUTCOME in x.attributes]
    assert [x.attributes[s.PROVIDER_NAME] for x in roots] == ["one", "two"]
    assert names(exporter).count("lookup") == 2
