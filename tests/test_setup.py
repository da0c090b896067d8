"""The composition root: one line makes an app traced, and never half of it."""

import asyncio
import json
import logging
from collections import Counter

import pytest
import trio
from fastapi import FastAPI
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import REGISTRY
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

import llm_trace
from llm_trace import semconv as s
from llm_trace.asgi.middleware import LedgerMiddleware
from llm_trace.core import faults
from llm_trace.errors import SettingsError
from llm_trace.observers.sdk import pipeline
from llm_trace.observers.sdk.provider import ProviderSink
from llm_trace.settings import Settings
from llm_trace.setup import apps_provider, compose, composition, exporters
from llm_trace.testing import (
    FakeClock,
    Server,
    http_scope,
    response_body,
    response_start,
    scripted,
    sse,
)

CHAT = "/v1/chat/completions"
TOKENS = b'data: {"choices": [{"delta": {"content": "a"}}]}\n\ndata: [DONE]\n\n'


class Pipe:
    """In place of the exporters: keeps what it was asked to export where."""

    made = ()

    def __init__(self, timeout):
        self.timeout = timeout
        self.spans, self.metrics = [], []
        self.flushed = 0
        Pipe.made = (*Pipe.made, self)

    def add_spans(self, endpoint):
        """Keep the place; a provider's sink for it."""
        self.spans.append(endpoint.url)
        return ProviderSink(TracerProvider())

    def add_metrics(self, endpoint, families):
        """Keep the place."""
        assert {f.name for f in families()} >= {"llm_trace_requests"}
        self.metrics.append(endpoint.url)

    def flush(self):
        """Nothing is queued."""
        self.flushed += 1


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """A process that has composed nothing yet, without variables and without a provider."""
    monkeypatch.setattr(composition, "_dispatches", {})
    monkeypatch.setattr(exporters, "_exported_to", set())
    monkeypatch.setattr(pipeline, "Pipeline", Pipe)
    monkeypatch.setattr(Pipe, "made", ())
    monkeypatch.setattr(trace, "get_tracer_provider", trace.ProxyTracerProvider)
    apps_provider._sink_of.cache_clear()


@pytest.fixture
def provider(monkeypatch):
    """A function that sets a provider of the app's own, and gives what it exported."""

    def provide():
        exporter, made = InMemorySpanExporter(), TracerProvider()
        made.add_span_processor(SimpleSpanProcessor(exporter))
        monkeypatch.setattr(trace, "get_tracer_provider", lambda: made)
        return exporter

    return provide


async def chat(_request=None):
    """Stream one token."""
    return StreamingResponse(iter([TOKENS]), media_type="text/event-stream")


def starlette(*routes, **more):
    """A Starlette app with a chat route."""
    return Starlette(routes=[Route(CHAT, chat, methods=["POST"]), *routes], **more)


def fastapi():
    """The same in FastAPI."""
    app = FastAPI()
    app.add_api_route(CHAT, chat, methods=["POST"], response_model=None)
    return app


APPS = pytest.mark.parametrize("make", [starlette, fastapi])


def ask(app, path=CHAT, method="POST", **scope):
    """Send one request: its status and body."""
    server = Server(b'{"model": "m", "stream": true}')
    asyncio.run(app(http_scope(path, method=method, **scope), server.receive, server.send))
    return server.sent[0]["status"], server.body


def counted():
    """How many requests the process has counted."""
    return sum(
        sample.value
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.name == s.REQUESTS.prometheus
    )


# --- instrument() -------------------------------------------------------------------------------


@APPS
def test_one_line_traces_an_app(make):
    """The app is returned, its answers are the same, each request is counted."""
    app, before = make(), counted()

    same = llm_trace.instrument(app)

    assert same is app
    assert (200, TOKENS) == ask(app)
    assert counted() == before + 1


@APPS
def test_instrumenting_again_changes_nothing(make):
    """Twice is once: one record, one route."""
    app, before = make(), counted()

    for _ in range(3):
        llm_trace.instrument(app)
    ask(app)
    llm_trace.instrument(app)
    ask(app)

    paths = [route.path for route in app.router.routes]
    assert counted() == before + 2
    assert (1, 1) == (paths.count("/metrics"), paths.count("/metrics/"))


@APPS
def test_an_app_whose_stack_is_built_is_traced_too(make):
    """After the first request, and after the stack is built anew."""
    app, before = make(), counted()
    ask(app)

    llm_trace.instrument(app)
    ask(app)
    app.middleware_stack = None
    ask(app)

    assert counted() == before + 2


class Noting:
    """A middleware that notes what is current when it runs."""

    def __init__(self, app, notes):
        self.app, self.notes = app, notes

    async def __call__(self, scope, receive, send):
        """Note and pass."""
        self.notes.append(llm_trace.current().closed)
        await self.app(scope, receive, send)


@APPS
def test_it_stands_outside_all_other_middleware(make):
    """Also outside of what is added after it, so that their time is the request's."""
    app, notes = llm_trace.instrument(make()), []
    app.add_middleware(Noting, notes=notes)

    ask(app)

    assert [False] == notes


class OwnStack(Starlette):
    """An app that puts something of its own around everything, as other instrumentation does."""

    def build_middleware_stack(self):
        """The stack inside a plain function."""
        stack = super().build_middleware_stack()

        async def around(scope, receive, send):
            await stack(scope, receive, send)

        return around


def test_a_stack_of_another_kind_is_traced_too():
    """Whatever an app's stack begins with."""
    app = llm_trace.instrument(OwnStack(routes=[Route(CHAT, chat, methods=["POST"])]))
    before = counted()

    assert ask(app)[0] == 200

    assert counted() == before + 1


@APPS
def test_disabled_leaves_the_app_as_it_came(make, monkeypatch):
    """By keyword or variable: no middleware, no route, and no bad OTLP variable is even read."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "nonsense")
    app, before = make(), counted()
    state = {k: v for k, v in vars(app).items() if k != "state"}, list(app.router.routes)

    llm_trace.instrument(app, enabled=False)
    monkeypatch.setenv("LLM_TRACE_ENABLED", "false")
    llm_trace.instrument(app)
    ask(app, CHAT)

    del state[0]["middleware_stack"]
    now = {k: v for k, v in vars(app).items() if k in state[0]}
    assert state == (now, list(app.router.routes))
    assert counted() == before


def test_a_disabled_app_can_be_instrumented_later():
    """The first call left no mark."""
    app, before = starlette(), counted()

    llm_trace.instrument(llm_trace.instrument(app, enabled=False))
    ask(app)

    assert counted() == before + 1


@pytest.mark.parametrize("app", [chat, Mount("/x", chat), None])
def test_other_apps_are_told_how(app):
    """What is no Starlette app is wrapped by hand, and the error says how."""
    with pytest.raises(SettingsError) as raised:
        llm_trace.instrument(app)

    assert str(raised.value) == (
        f"instrument() needs a Starlette or FastAPI app, not {type(app).__name__}: wrap other "
        "ASGI apps by hand, app = llm_trace.TraceMiddleware(app)."
    )


def test_an_unknown_setting_is_an_error():
    """Keywords are settings, and only they."""
    with pytest.raises(SettingsError, match="did you mean phases"):
        llm_trace.instrument(starlette(), phase="rerank")


CONTRADICTIONS = [
    {"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317"},
    {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
    },
    {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c", "OTEL_EXPORTER_OTLP_INSECURE": "true"},
    {"OTEL_TRACES_EXPORTER": "zipkin"},
    {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "-1"},
    {"LLM_TRACE_DEVICE": "H1", "LLM_TRACE_MODEL_CONFIG": "Llama-3.1-8B"},
]


@pytest.mark.parametrize("environ", CONTRADICTIONS)
def test_contradictions_are_found_at_start_and_leave_nothing_behind(environ, monkeypatch):
    """The error comes before the app is touched, so that a second try is a whole one."""
    app, before = starlette(), counted()
    routes = list(app.router.routes)
    with monkeypatch.context() as wrong:
        for name, value in environ.items():
            wrong.setenv(name, value)
        with pytest.raises(SettingsError):
            llm_trace.instrument(app)

    assert routes == app.router.routes
    llm_trace.instrument(app)
    ask(app)
    assert counted() == before + 1


# --- /metrics -----------------------------------------------------------------------------------


@APPS
@pytest.mark.parametrize("path", ["/metrics", "/metrics/"])
def test_metrics_are_served_with_and_without_the_slash(make, path):
    """200 on both, and the scrape itself is not counted."""
    app, before = llm_trace.instrument(make()), counted()

    status, body = ask(app, path, "GET")

    assert status == 200
    assert b"llm_trace_requests_total" in body
    assert counted() == before


def test_a_catch_all_does_not_swallow_metrics():
    """A frontend mounted at the root comes after them."""
    everything = Mount("/", PlainTextResponse("page"))
    app = llm_trace.instrument(starlette(everything))

    assert b"llm_trace_requests_total" in ask(app, "/metrics", "GET")[1]
    assert (200, b"page") == ask(app, "/other", "GET")


def test_an_apps_own_metrics_stay(caplog):
    """A route of the app at that path is left alone, and that is said."""
    caplog.set_level(logging.INFO)
    own = Route("/metrics", lambda _: PlainTextResponse("mine"))

    app = llm_trace.instrument(starlette(own))

    assert (200, b"mine") == ask(app, "/metrics", "GET")
    assert ["llm_trace: /metrics is the app's own route, left as it is."] == caplog.messages


@pytest.mark.parametrize(("path", "expected"), [("/prom", 404), ("", 404)])
def test_metrics_move_or_stay_away(path, expected):
    """Another path, or none at all."""
    app = llm_trace.instrument(starlette(), metrics_path=path)

    assert expected == ask(app, "/metrics", "GET")[0]
    assert (404 if not path else 200) == ask(app, "/prom", "GET")[0]


# --- where spans and metrics go -----------------------------------------------------------------


def names(exporter):
    """The names of exported spans."""
    return [span.name for span in exporter.get_finished_spans()]


def test_a_request_has_a_verdict_on_its_span_and_in_the_log(provider, caplog):
    """The same one, with its reason and what to look at next."""
    exporter = provider()
    app = llm_trace.instrument(starlette(), slow_ttft=1e-9)

    ask(app)

    [root] = [x for x in exporter.get_finished_spans() if x.name == "chat m"]
    assert root.attributes[s.VERDICT] in s.VERDICTS
    assert root.attributes[s.VERDICT_REASON]
    assert f"{s.VERDICT}={root.attributes[s.VERDICT]}" in caplog.text


def test_the_flight_recorder_shows_requests_that_nobody_exported():
    """To callers on this machine; without the setting there is no page."""
    app = llm_trace.instrument(starlette(), flight_recorder=2)
    ask(app)

    status, body = ask(app, "/debug/llm_trace", "GET")
    assert status == 200
    assert b'"chat m"' in body
    assert ask(app, "/debug/llm_trace", "GET", client=("10.0.0.1", 1))[0] == 404
    assert ask(llm_trace.instrument(starlette()), "/debug/llm_trace", "GET")[0] == 404


@pytest.mark.parametrize(
    ("name", "text"),
    [("OTEL_SERVICE_NAME", "rag"), ("OTEL_RESOURCE_ATTRIBUTES", "deployment=x,service.name=rag")],
)
def test_the_flight_recorder_calls_the_service_as_its_exports_do(name, text, monkeypatch):
    """By either of the standard variables."""
    monkeypatch.setenv(name, text)
    app = llm_trace.instrument(starlette(), flight_recorder=2)

    (group,) = json.loads(ask(app, "/debug/llm_trace", "GET")[1])["resourceSpans"]
    assert group["resource"]["attributes"][0]["value"] == {"stringValue": "rag"}


def test_an_apps_own_provider_gets_the_spans(provider):
    """Whether it was set before or after."""
    app = llm_trace.instrument(starlette())
    ask(app)
    exporter = provider()

    ask(app)

    assert "chat m" in names(exporter)
    assert Pipe.made == ()


def test_without_a_provider_nothing_is_current():
    """Metrics alone: no identity, no span."""
    seen = []

    async def look(scope, _receive, _send):
        seen.append((scope["llm_trace"].identity, trace.get_current_span()))

    server = Server()
    app = llm_trace.TraceMiddleware(look)
    asyncio.run(app(http_scope(), server.receive, server.send))

    assert [(None, trace.INVALID_SPAN)] == seen


def test_before_the_sdk_is_loaded_there_is_no_provider(monkeypatch):
    """Nobody can have set one, and it is not loaded for the question."""
    monkeypatch.delitem(apps_provider.sys.modules, "opentelemetry.sdk.trace")

    assert apps_provider.sink() is None


def test_endpoints_of_the_environment_are_used(monkeypatch):
    """One private pipeline exports both signals."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318")

    dispatch = compose(Settings(shutdown_timeout=2))
    dispatch.start()

    (pipe,) = Pipe.made
    assert (["http://collector:4318/v1/traces"], ["http://collector:4318/v1/metrics"], 2) == (
        pipe.spans,
        pipe.metrics,
        pipe.timeout,
    )
    dispatch.flush()
    assert pipe.flushed == 1
    assert dispatch.tracer.begin([], "n").sampled


def test_metrics_alone_may_have_an_endpoint(monkeypatch, provider):
    """Spans go to the app's own provider then, metrics over OTLP."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318")
    provider()

    compose(Settings()).start()

    (pipe,) = Pipe.made
    assert ([], ["http://collector:4318/v1/metrics"]) == (pipe.spans, pipe.metrics)


def test_spans_alone_may_have_an_endpoint(monkeypatch):
    """The variable of the signal is taken as it is."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://tempo:4318/x")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")

    compose(Settings()).start()

    (pipe,) = Pipe.made
    assert (["http://tempo:4318/x"], []) == (pipe.spans, pipe.metrics)


def test_an_endpoint_in_the_settings_beats_the_apps_provider(provider):
    """Who names a place for llm_trace's spans gets them there."""
    provider()

    compose(Settings(otlp_endpoint="http://c:4317", otlp_protocol="grpc")).start()

    (pipe,) = Pipe.made
    assert (["http://c:4317"], ["http://c:4317"]) == (pipe.spans, pipe.metrics)


def test_two_apps_share_what_they_can(monkeypatch):
    """Equal settings make one dispatch; different ones never send the same metrics twice."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317")

    one, same = compose(Settings()), compose(Settings())
    other = compose(Settings(provider="sglang"))
    for dispatch in (one, same, other):
        dispatch.start()

    assert one is same
    assert one is not other
    assert [["http://c:4317"], []] == [pipe.metrics for pipe in Pipe.made]


def test_each_of_two_apps_names_its_own_stores(provider):
    """Over one provider, to which one of them listens for both."""
    exporter = provider()

    async def search(_request):
        said = {"db.system.name": "shelf", "db.operation.name": "search"}
        tracer = trace.get_tracer_provider().get_tracer("shelf")
        with tracer.start_as_current_span("search", attributes=said):
            await asyncio.sleep(0.001)
        return await chat()

    known = []
    for stores in (("qdrant",), ("Shelf",), ("qdrant",)):
        app = Starlette(routes=[Route(CHAT, search, methods=["POST"])])
        exporter.clear()
        ask(llm_trace.instrument(app, retrieval_stores=stores))
        (root,) = [x for x in exporter.get_finished_spans() if s.OUTCOME in x.attributes]
        known.append(f"{s.TTFT_PHASE_PREFIX}{s.RETRIEVAL}" in root.attributes)

    assert known == [False, True, False]


@pytest.mark.parametrize("broken", ["add_spans", "add_metrics"])
def test_a_signal_that_cannot_be_exported_costs_the_other_nothing(broken, monkeypatch):
    """A certificate of one is missing: it is a fault, and the other has its exporter."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317")
    monkeypatch.setattr(faults, "internal", Counter())

    def missing(*_):
        raise OSError("no certificate")

    monkeypatch.setattr(Pipe, broken, missing)
    with faults.production():
        compose(Settings()).start()

    (pipe,) = Pipe.made
    assert Counter(exporters=1) == faults.internal
    assert sorted([pipe.spans, pipe.metrics]) == [[], ["http://c:4317"]]


def test_metrics_are_sent_by_the_app_that_serves(monkeypatch):
    """One that was composed first and never serves keeps them from nobody."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317")

    compose(Settings())
    compose(Settings(provider="sglang")).start()

    assert [["http://c:4317"]] == [pipe.metrics for pipe in Pipe.made]


def test_nothing_is_opened_before_a_server_serves(monkeypatch):
    """A server may fork its workers after it has loaded the app."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317")
    app = llm_trace.instrument(starlette())

    made = [len(Pipe.made)]
    for _ in range(2):
        ask(app)
        made.append(len(Pipe.made))

    assert made == [0, 1, 1]


def test_a_server_that_starts_opens_its_exporters(monkeypatch):
    """Metrics are exported from the start, not from the first request."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317")
    app = llm_trace.instrument(starlette())

    with TestClient(app):
        assert [["http://c:4317"]] == [pipe.metrics for pipe in Pipe.made]


def test_nothing_to_export_is_nothing_to_flush():
    """At shutdown there is nothing to do."""
    assert compose(Settings()).flush() is None


# --- TraceMiddleware ----------------------------------------------------------------------------


def test_the_middleware_needs_only_an_app(monkeypatch):
    """By hand, by `add_middleware`, or in a list: settings come from the environment."""
    monkeypatch.setenv("LLM_TRACE_SERVED_MODELS", "m")
    before = counted()
    listed = starlette(middleware=[Middleware(llm_trace.TraceMiddleware)])
    added = starlette()
    added.add_middleware(llm_trace.TraceMiddleware)
    by_hand = llm_trace.TraceMiddleware(starlette())

    for app in (listed, added, by_hand):
        assert (200, TOKENS) == ask(app)

    assert counted() == before + 3
    assert isinstance(by_hand, LedgerMiddleware)


def test_on_an_app_and_on_one_mounted_in_it_there_is_one_record():
    """The outer one watches, the inner one steps aside."""
    inner = llm_trace.instrument(starlette())
    outer = llm_trace.instrument(Starlette(routes=[Mount("/sub", inner)]))
    before = counted()

    assert ask(outer, f"/sub{CHAT}")[0] == 200

    assert counted() == before + 1


def test_the_middleware_can_be_disabled(monkeypatch):
    """A flag of a server can add it and a variable turn it off: no exporter, no metric."""
    monkeypatch.setenv("LLM_TRACE_ENABLED", "false")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "nonsense")
    before = counted()

    assert (200, TOKENS) == ask(llm_trace.TraceMiddleware(starlette()))

    assert counted() == before


def test_the_middleware_refuses_bad_variables(monkeypatch):
    """At start, not at the first request."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "nonsense")

    with pytest.raises(SettingsError):
        llm_trace.TraceMiddleware(chat)


@pytest.mark.parametrize("run", [asyncio.run, trio.run])
def test_a_server_that_runs_already_is_told_of_bad_variables(monkeypatch, run):
    """It takes what is raised while it starts for an app without a lifespan, and would serve it."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "nonsense")
    sent = []

    async def receive():
        return {"type": "lifespan.startup"}

    async def send(message):
        sent.append(message["type"])

    async def start():
        await llm_trace.TraceMiddleware(chat)({"type": "lifespan"}, receive, send)

    run(start() if run is asyncio.run else start)

    assert sent == ["lifespan.startup.failed"]


def test_inside_fastapis_own_server_span_ours_is_internal(provider):
    """FastAPI makes a server span when a provider is set: one trace, ours under it."""
    exporter = provider()
    app = llm_trace.instrument(fastapi())

    ask(app)

    spans = {span.name: span for span in exporter.get_finished_spans()}
    ours = spans["chat m"]
    assert {ours.context.trace_id} == {span.context.trace_id for span in spans.values()}
    servers = [x for x in spans.values() if x.kind is trace.SpanKind.SERVER]
    if servers == [ours]:
        assert ours.parent is None
    else:
        assert [ours.parent.span_id] == [x.context.span_id for x in servers]


def test_a_benchmark_that_is_none_is_found_at_start(tmp_path):
    """The message names the file and how to make one."""
    path = tmp_path / "bench.json"
    path.write_text("{}")

    with pytest.raises(SettingsError, match=r"bench\.json' cannot be used: .*llm-trace bench"):
        compose(Settings(benchmark=str(path)))


def test_a_benchmark_is_expected_of_each_request(tmp_path, provider):
    """From the file to the root span."""
    exporter = provider()
    cells = [
        {"concurrency": 1, "prompt_tokens": n, "prefix": "new", "ttft": {"median": n / 1000}}
        | {"reuse": {"verdict": "confirmed", "share": 0.0}}
        for n in (100, 200)
    ]
    path = tmp_path / "bench.json"
    document = {"schema": "llm-trace.bench/1", "target": {"model": "m"}, "cells": cells}
    path.write_text(json.dumps(document))
    usage = {"prompt_tokens": 150, "prompt_tokens_details": {"cached_tokens": 0}}
    answer = [sse({"choices": [{"delta": {"content": "a"}}]}), sse({"choices": [], "usage": usage})]
    app = scripted(FakeClock(), response_start("text/event-stream"), *answer, response_body())
    served = llm_trace.TraceMiddleware(app, Settings(benchmark=str(path)))
    server = Server(b'{"model": "m", "stream": true}')

    asyncio.run(served(http_scope(), server.receive, server.send))

    (root,) = (x for x in exporter.get_finished_spans() if s.OUTCOME in x.attributes)
    assert root.attributes[s.EXPECTED_TTFT] == pytest.approx(0.15)
