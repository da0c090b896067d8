"""Beside the instrumentation of others: one server span, the right parent, nothing twice."""

from __future__ import annotations

import asyncio

import pytest
from fastapi import FastAPI, Request
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from prometheus_client import REGISTRY
from traced_apps import ARRANGEMENTS, CHAT, fastapi

import llm_trace
from llm_trace import semconv as s
from llm_trace.setup import composition
from llm_trace.testing import Server, http_scope

CLIENT_TRACE, CLIENT_SPAN = 0xABC, 0xDEF
INBOUND = (b"traceparent", f"00-{CLIENT_TRACE:032x}-{CLIENT_SPAN:016x}-01".encode())


@pytest.fixture
def spans(monkeypatch):
    """A process with a provider of the app's own; a function that gives the spans so far."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setattr(composition, "_dispatches", {})
    return exporter.get_finished_spans


def ask(app, headers=()):
    """Send one request: its status."""
    server = Server(b'{"model": "m", "stream": true}')
    asyncio.run(app(http_scope(CHAT, headers=headers), server.receive, server.send))
    return server.sent[0]["status"]


def counted():
    """How many requests the process has counted."""
    samples = (x for family in REGISTRY.collect() for x in family.samples)
    return sum(x.value for x in samples if x.name == s.REQUESTS.prometheus)


def ancestors(span, family):
    """The spans above `span`, up to the first that is not in the family."""
    parent = span.parent and family.get(span.parent.span_id)
    return [parent, *ancestors(parent, family)] if parent else []


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
@pytest.mark.parametrize("parented", [True, False], ids=["under a client", "without a client"])
def test_one_server_span_with_the_right_parent(arrangement, parented, spans):
    """One tree for the request, whoever makes the server's span, and one request counted."""
    app, before = ARRANGEMENTS[arrangement](), counted()

    assert ask(app, [INBOUND] if parented else []) == 200

    family = {span.context.span_id: span for span in spans()}
    (ours,) = [span for span in family.values() if s.OUTCOME in span.attributes]
    (server,) = [span for span in family.values() if span.kind is SpanKind.SERVER]
    tops = [span for span in family.values() if not ancestors(span, family)]
    (top,) = tops
    assert len({span.context.trace_id for span in family.values()}) == 1
    if parented:
        assert (CLIENT_TRACE, CLIENT_SPAN) == (top.parent.trace_id, top.parent.span_id)
    else:
        assert top.parent is None
    assert top in {ours, server}
    for name in ("work", "stream"):
        (span,) = [span for span in family.values() if span.name == name]
        assert ours in ancestors(span, family), name
    assert counted() == before + 1


BELOW = {
    "FastAPI's own spans outside",
    "Starlette's own spans outside",
    "instrumentation-fastapi after",
    "instrumentation-asgi outside",
    "instrumentation-asgi around the middleware",
    "sub-app of FastAPI",
    "among the middlewares of FastAPI",
    "among the middlewares, under instrumentation-fastapi",
    "under a layer that copies the scope",
}
ABOVE = {"FastAPI's own spans inside", "Starlette's own spans inside"}


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_whose_the_server_span_is_follows_from_who_saw_the_request_first(arrangement, spans):
    """As the table of the page has it: ours, or another's with ours below or above it."""
    ask(ARRANGEMENTS[arrangement]())

    family = {span.context.span_id: span for span in spans()}
    ours = next(span for span in family.values() if s.OUTCOME in span.attributes)
    server = next(span for span in family.values() if span.kind is SpanKind.SERVER)
    assert (server in ancestors(ours, family)) is (arrangement in BELOW)
    assert (ours in ancestors(server, family)) is (arrangement in ABOVE)
    assert (ours is server) is (arrangement not in BELOW | ABOVE)


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_http_attributes_are_the_server_spans(arrangement, spans):
    """They are on ours where ours is the server's span, and nowhere else of ours."""
    ask(ARRANGEMENTS[arrangement]())

    ours = next(span for span in spans() if s.OUTCOME in span.attributes)
    assert (s.HTTP_STATUS in ours.attributes) is (ours.kind is SpanKind.SERVER)


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_each_request_has_a_tree_of_its_own(arrangement, spans):
    """Requests that follow each other in one context, as on a kept-alive connection, stay apart."""
    app = ARRANGEMENTS[arrangement]()

    async def follow():
        for _ in range(3):
            server = Server(b'{"model": "m"}')
            await app(http_scope(CHAT, headers=[]), server.receive, server.send)

    asyncio.run(follow())

    ours = [span for span in spans() if s.OUTCOME in span.attributes]
    assert (3, 3) == (len(ours), len({span.context.trace_id for span in ours}))


@pytest.mark.parametrize("reads", [True, False], ids=["after the body", "at once"])
def test_an_app_that_breaks_has_one_server_span_too(reads, spans):
    """FastAPI's is the server's where it stands inside, and ours only says what failed."""
    app = FastAPI()

    async def breaks(request: Request):
        if reads:
            await request.body()
        raise LookupError("x")

    app.post(CHAT)(breaks)

    with pytest.raises(LookupError):
        ask(llm_trace.TraceMiddleware(app))

    ours = next(span for span in spans() if s.OUTCOME in span.attributes)
    servers = [span for span in spans() if span.kind is SpanKind.SERVER]
    assert (["POST " + CHAT], SpanKind.INTERNAL) == ([x.name for x in servers], ours.kind)
    assert ours.attributes[s.OUTCOME] == "error"


def test_fastapis_metrics_alone_make_no_server_span(spans):
    """What only counts requests leaves the server's span to us."""
    meters = MeterProvider(shutdown_on_exit=False)
    app = fastapi(telemetry={"tracing": False, "meter_provider": meters})

    ask(llm_trace.TraceMiddleware(app))

    assert [s.OUTCOME in x.attributes for x in spans() if x.kind is SpanKind.SERVER] == [True]
