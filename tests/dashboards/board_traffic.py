"""Requests of every kind on a small RAG app under a fake clock, and the /metrics pages they make.

Nothing is waited for: a page every half minute comes from a clock that is told to move.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from unittest.mock import patch

from prometheus_client import CollectorRegistry

import llm_trace
from llm_trace.asgi.middleware import LedgerMiddleware
from llm_trace.core import engines
from llm_trace.core.dispatch import Dispatch
from llm_trace.core.expected import Curve, Expected
from llm_trace.core.tracer import NO_TRACER
from llm_trace.diagnosis.known import Judging
from llm_trace.observers import metrics
from llm_trace.observers.exposition import page
from llm_trace.observers.metrics import instruments
from llm_trace.observers.recorder import MetricsObserver
from llm_trace.observers.verdicts import VerdictObserver
from llm_trace.settings import Settings
from llm_trace.testing import (
    FakeClock,
    Server,
    drive,
    http_scope,
    response_body,
    response_start,
    sse,
)

MS = 1_000_000
BODY = b'{"model": "tiny", "stream": true, "messages": []}'
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


MEASURED = (50.0, 200.0)
BENCHMARK = Expected(
    "tiny", Curve(MEASURED, (0.07, 0.2)), Curve(MEASURED, (0.02, 0.03)), Curve(MEASURED, (0.9, 0.9))
)
"""What a benchmark of the engine measured."""

JUDGE = Judging(Settings(device="H100 SXM", model_config="Llama-3.1-8B"))
"""Knows what the engine runs on."""


@dataclass(frozen=True)
class Request:
    """How many milliseconds one request spends where, and how it ends."""

    admission: int = 2
    load: int = 0
    retrieval: int = 30
    prepare: int = 3
    queue: int = 20
    prefill: int = 60
    first_token: int = 4
    gap: int = 15
    cached: int = 0
    edge: int = 5
    """From the proxy's stamp to the arrival."""
    held: int = 0
    """For how long the client leaves its first message unread, and each one after it."""
    split: bool = True
    """Whether the engine gives moments of its own."""
    ends: str = "ok"
    """ok, or what happens before the first token: cancelled, error, rejected."""


REQUESTS = (
    Request(),
    Request(cached=90, prefill=12),
    Request(cached=40),
    Request(queue=2_300),
    Request(retrieval=900, prefill=400),
    Request(load=5_000),
    Request(first_token=600, gap=200),
    Request(held=80),
    Request(split=False),
    Request(ends="cancelled", queue=9_000),
    Request(ends="error"),
    Request(ends="rejected"),
)
"""One of each kind: the traffic of half a minute."""


class Client(Server):
    """The client of `request`, behind a proxy, which may read slowly."""

    def __init__(self, clock, request):
        super().__init__(BODY)
        self._clock = clock
        self._request = request

    @property
    def scope(self):
        """The request as the proxy handed it on."""
        sent = self._clock.clock.wall_ns() - self._request.edge * MS
        return http_scope(headers=[(b"x-request-start", b"t=%d" % (sent // MS))])

    async def send(self, message):
        """Take a message, held back for as long as the request says."""
        if self._request.held:
            await asyncio.sleep(0)
            self._clock.advance(self._request.held * MS)
        await super().send(message)


def delta(**content):
    """Build an event with a piece of the answer."""
    return sse({"choices": [{"index": 0, "delta": content}]})


def app(clock, request):
    """Build the app that serves `request`."""

    async def serve(_scope, receive, send):
        await receive()
        clock.advance(request.admission * MS)
        if request.ends == "rejected":
            await send(response_start(status=429))
            await send(response_body(b"{}"))
            return
        llm_trace.admitted()
        with llm_trace.retrieval("docs"):
            clock.advance(request.retrieval * MS)
        clock.advance(request.prepare * MS)
        if request.load:
            with llm_trace.phase("model_load"):
                clock.advance(request.load * MS)
        await generate(clock, request, send)

    return serve


async def generate(clock, request, send):
    """Let the engine answer, and stream what it says."""
    with llm_trace.engine_call("chat", "tiny") as call:
        mark = call.mark if request.split else str
        mark("queued")
        clock.advance(request.queue * MS)
        if request.ends == "cancelled":
            raise asyncio.CancelledError
        mark("scheduled")
        clock.advance(request.prefill * MS)
        if request.ends == "error":
            raise RuntimeError("the engine died")
        mark("first_token")
        call.usage(input_tokens=100, cached_tokens=request.cached, output_tokens=4)
        clock.advance(request.first_token * MS)
        await send(response_start("text/event-stream"))
        for text in ("a", "b", "c", "d"):
            await send(delta(content=text))
            clock.advance(request.gap * MS)
    await send(sse("[DONE]"))
    await send(response_body())


@dataclass(frozen=True)
class Parked:
    """A request that stays in one phase while the page is read, and ends after that unrecorded."""

    where: str

    def app(self, arrived, read):
        """Build the app that serves it; `arrived` is told when it is where it stays."""

        async def stay(phase):
            if phase == self.where:
                arrived()
                await read.wait()

        async def serve(_scope, receive, send):
            await receive()
            llm_trace.admitted()
            with llm_trace.retrieval("docs"):
                await stay("retrieval")
            with llm_trace.engine_call("chat", "tiny") as call:
                call.mark("queued")
                await stay("queue_wait")
                call.mark("scheduled")
                await stay("prefill")
                call.mark("first_token")
                await send(response_start("text/event-stream"))
                await send(delta(content="a"))
                await stay("decode")
            await send(sse("[DONE]"))
            await send(response_body())

        return serve


class Joined:
    """What a join with vLLM says of itself."""

    tier = "engine-events"
    clock_is_foreign = False


class Served:
    """The app's process: what it has served so far is on its page."""

    def __init__(self, tracer=NO_TRACER, *observers):
        self.tracer = tracer
        self.others = observers
        self.registry = CollectorRegistry()
        samples = instruments(self.registry)
        self.observer = MetricsObserver(samples, expect=BENCHMARK.of)
        self.verdicts = VerdictObserver(samples, JUDGE, self.observer.base)
        self.clock = FakeClock()
        self.engine = Joined()
        engines.joined.add(self.engine)

    def serve(self, requests):
        """Serve `requests`, one after the other."""
        for request in requests:
            with suppress(asyncio.CancelledError, RuntimeError):
                served = app(self.clock, request)
                heard = (self.observer, self.verdicts, *self.others)
                client = Client(self.clock, request)
                with_client = {"server": client, "scope": client.scope}
                asyncio.run(drive(served, *heard, **with_client, **self._of_the_process()))
            self.observer.lagged(MS * request.held)

    def _of_the_process(self):
        return {"clock": self.clock, "tracer": self.tracer}

    def page(self):
        """The OpenMetrics page."""
        with patch.object(metrics, "SYSTEM", self.clock.clock):
            return page(OPENMETRICS, self.registry)[0].decode()

    def page_amid(self, parked, waited=0):
        """The OpenMetrics page while the requests `parked` are in flight, for so many ms."""
        return asyncio.run(self._amid(parked, waited)) if parked else self.page()

    async def _amid(self, parked, waited):
        there, read = asyncio.Semaphore(0), asyncio.Event()
        dispatch = Dispatch(NO_TRACER, ())
        instruments(self.registry).watch(dispatch)
        apps = [each.app(there.release, read) for each in parked]
        running = asyncio.gather(*(self._call(one, dispatch) for one in apps))
        for _ in parked:
            await there.acquire()
        self.clock.advance(waited * MS)
        text = self.page()
        read.set()
        await running
        return text

    async def _call(self, served, dispatch):
        settings = Settings()
        middleware = LedgerMiddleware(
            served, settings=settings, dispatch=dispatch, clock=self.clock.clock
        )
        server = Server(BODY)
        await middleware(http_scope(), server.receive, server.send)


def pages(rounds):
    """The page after each of `rounds` of requests."""
    process = Served()
    for requests in rounds:
        process.serve(requests)
        yield process.page()
