"""The instrumentor: an app that a server calls is traced, once, and no fault costs the process."""

import asyncio
import logging

import pytest
from fastapi import FastAPI
from prometheus_client import REGISTRY
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

import llm_trace
from llm_trace import semconv as s
from llm_trace.core import faults
from llm_trace.instrumentor import LlmTraceInstrumentor
from llm_trace.setup import apps_provider, composition, starlette_app
from llm_trace.testing import Server, http_scope

CHAT = "/v1/chat/completions"


@pytest.fixture
def instrumentor(monkeypatch):
    """The instrumentor, undone at the end."""
    monkeypatch.setattr(composition, "_dispatches", {})
    one = LlmTraceInstrumentor()
    yield one
    if one.is_instrumented_by_opentelemetry:
        one.uninstrument()


def answer(_request=None):
    """A plain answer."""
    return PlainTextResponse("hi")


def starlette():
    """A Starlette app."""
    return Starlette(routes=[Route(CHAT, answer, methods=["POST"])])


def fastapi():
    """A FastAPI app."""
    app = FastAPI()
    app.add_api_route(CHAT, answer, methods=["POST"], response_model=None)
    return app


APPS = pytest.mark.parametrize("make", [starlette, fastapi])


def ask(app, path=CHAT, method="POST"):
    """Send one request: its status."""
    server = Server(b"{}")
    asyncio.run(app(http_scope(path, method=method), server.receive, server.send))
    return server.sent[0]["status"]


def start(app):
    """Begin and end the app's life, as a server does."""
    server = Server(chunks=[{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    asyncio.run(app({"type": "lifespan", "asgi": {}}, server.receive, server.send))


def counted():
    """How many requests the process has counted."""
    samples = (x for family in REGISTRY.collect() for x in family.samples)
    return sum(x.value for x in samples if x.name == s.REQUESTS.prometheus)


@APPS
@pytest.mark.parametrize("lives", [True, False], ids=["with a lifespan", "without"])
def test_an_app_that_a_server_calls_is_traced(make, lives, instrumentor):
    """Whether it was made before or after, and /metrics is there."""
    app, before = make(), counted()
    instrumentor.instrument()
    if lives:
        start(app)

    assert [200, 200, 200, 200] == [
        ask(app),
        ask(app),
        ask(app, "/metrics", "GET"),
        ask(app, "/metrics/", "GET"),
    ]
    assert counted() == before + 2


@APPS
def test_an_app_that_was_instrumented_in_code_stays_so(make, instrumentor):
    """One record a request."""
    app, before = llm_trace.instrument(make()), counted()
    instrumentor.instrument()

    ask(app)

    assert counted() == before + 1


@APPS
def test_a_mounted_app_is_part_of_the_one_that_was_called(make, instrumentor):
    """It gets no /metrics of its own, also not by a probe, which nobody watches."""
    inner = make()
    outer, before = Starlette(routes=[Mount("/sub", inner)]), counted()
    instrumentor.instrument()

    statuses = [ask(outer, "/sub/health", "GET"), ask(outer, f"/sub{CHAT}")]

    assert [404, 200] == statuses
    assert counted() == before + 1
    assert "/metrics" not in [getattr(route, "path", None) for route in inner.routes]


@APPS
def test_it_can_be_undone(make, instrumentor):
    """Apps that are called for the first time afterwards are untouched."""
    original = Starlette.__call__
    instrumentor.instrument()
    instrumentor.uninstrument()
    before = counted()

    ask(make())

    assert original is Starlette.__call__
    assert counted() == before


def test_settings_that_cannot_be_used_cost_nobody_the_process(instrumentor, monkeypatch, caplog):
    """The sentence that `instrument()` would raise is said, and apps are served as they are."""
    monkeypatch.setenv("LLM_TRACE_ROUTE", "/x=chat")
    before = counted()

    instrumentor.instrument()

    assert ask(starlette()) == 200
    assert counted() == before
    expected = (
        "llm_trace: environment variable LLM_TRACE_ROUTE is unknown: did you mean "
        "LLM_TRACE_ROUTES? Apps are not traced."
    )
    assert [(logging.ERROR, expected)] == [(x.levelno, x.getMessage()) for x in caplog.records]


def test_contradictions_are_said_once_for_an_app(instrumentor, monkeypatch, caplog):
    """What only shows when exporters are made costs the app its traces and no request."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317")
    monkeypatch.setattr(apps_provider, "sink", lambda: None)
    app = starlette()

    instrumentor.instrument()

    assert [200, 200] == [ask(app), ask(app)]
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.endswith("such as http://collector:4317. The app is not traced.")


def test_a_fault_of_ours_is_contained(instrumentor, monkeypatch):
    """The app is served."""
    monkeypatch.setattr(starlette_app, "_wrap", None)
    instrumentor.instrument()

    with faults.production():
        assert ask(starlette()) == 200


def test_settings_may_be_given_in_code(instrumentor):
    """As keywords, by who calls it himself."""
    app = starlette()
    instrumentor.instrument(metrics_path="/prom")

    assert [404, 200] == [ask(app, "/metrics", "GET"), ask(app, "/prom", "GET")]
