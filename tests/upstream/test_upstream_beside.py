"""Beside other instrumentation of the clients: one chain of parents, and nobody fights."""

from __future__ import annotations

import subprocess
import sys
from itertools import count

import aiohttp
import httpx
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from opentelemetry import propagate, trace
from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from staged_engine import BODY, serve

from llm_trace.observers.tracer import OtelTracer
from llm_trace.upstream import switch_off, switch_on

TRACE = 0x7AACE
PATH = "/v1/chat/completions"


class Sink:
    """A provider as far as a tracer needs one."""

    def __init__(self):
        self._ids = count(1)

    def new_trace_id(self):
        """Always the same."""
        return TRACE

    def new_span_id(self):
        """The next one."""
        return next(self._ids)

    def sample(self, _parent, _trace_id, _name, _kind):
        """Everything."""
        return True, None


@pytest.fixture
def exporter():
    """What others export."""
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter):
    """The provider of others."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider
    provider.shutdown()


@pytest.fixture(params=["theirs first", "ours first"])
def _both(request, provider):
    """Both instrumentations of httpx, put on in either order."""
    if request.param == "ours first":
        switch_on()
    HTTPXClientInstrumentor().instrument(tracer_provider=provider)
    switch_on()
    yield
    HTTPXClientInstrumentor().uninstrument()
    switch_off()


def called(ask, clock):
    """The record of a request in which `ask` calls a real server, and the parent that it saw."""
    seen = []

    async def answer(request):
        seen.append(request.headers["traceparent"])
        return web.json_response({"choices": []})

    async def work():
        app = web.Application()
        app.router.add_post(PATH, answer)
        async with TestServer(app) as server:
            yield await ask(str(server.make_url(PATH)))

    sink = Sink()
    record, _ = serve(work, clock, tracer=OtelTracer(lambda: sink))
    return record, seen


def check_chain(record, seen, exporter):
    """The engine's parent is their span, whose parent is our call."""
    (call,) = record.calls
    (theirs,) = exporter.get_finished_spans()
    own = theirs.get_span_context()

    assert seen == [f"00-{TRACE:032x}-{own.span_id:016x}-01"]
    assert (own.trace_id, theirs.parent.span_id) == (TRACE, call.span_id)


@pytest.mark.usefixtures("_both")
def test_httpx(exporter, clock):
    """Their span of the wire stands between our call and the engine."""

    async def ask(url):
        async with httpx.AsyncClient(trust_env=False) as client:
            return (await client.post(url, json=BODY)).content

    record, seen = called(ask, clock)

    check_chain(record, seen, exporter)


@pytest.mark.usefixtures("_watching")
def test_aiohttp(provider, exporter, clock):
    """A session with trace signals that make a span and put it on the wire, as theirs do."""

    async def started(_session, context, params):
        context.span = provider.get_tracer("theirs").start_span("POST")
        propagate.inject(params.headers, context=trace.set_span_in_context(context.span))

    async def ended(_session, context, _params):
        context.span.end()

    signals = aiohttp.TraceConfig()
    signals.on_request_start.append(started)
    signals.on_request_end.append(ended)

    async def ask(url):
        async with (
            aiohttp.ClientSession(trace_configs=[signals]) as session,
            session.post(url, json=BODY) as response,
        ):
            return await response.read()

    record, seen = called(ask, clock)

    check_chain(record, seen, exporter)


SENTRY = """
import asyncio, sys
import httpx, sentry_sdk
from llm_trace.testing import FakeClock, Recorder, drive, response_body, response_start
from llm_trace.upstream import switch_on

def theirs():
    sentry_sdk.init(dsn="http://key@127.0.0.1:9/1", traces_sample_rate=1.0, transport=print)

for step in ((theirs, switch_on) if sys.argv[1] == "theirs first" else (switch_on, theirs)):
    step()

parents = []

def answer(request):
    parents.append(request.headers["sentry-trace"])
    stream = b'data: {"choices": [{"delta": {"content": "a"}}]}\\n\\ndata: [DONE]\\n\\n'
    return httpx.Response(200, content=stream, headers={"content-type": "text/event-stream"})

async def app(scope, receive, send):
    await receive()
    with sentry_sdk.start_transaction(name="request"):
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
            body = {"model": "m", "stream": True}
            got = await client.post("http://engine/v1/chat/completions", json=body)
    await send(response_start("text/event-stream"))
    await send(response_body(got.content))

recorder = Recorder()
asyncio.run(drive(app, recorder, clock=FakeClock()))
(call,) = recorder.record.calls
assert call.attributes["llm_trace.upstream.outcome"] == "ok", call
assert len(parents) == 1 and parents[0]
"""


@pytest.mark.parametrize("order", ["theirs first", "ours first"])
def test_sentry(order):
    """It replaces the very method that we do: whichever came first, both see the call once."""
    pytest.importorskip("sentry_sdk")
    command = [sys.executable, "-c", SENTRY, order]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (0, "") == (ran.returncode, ran.stderr)
