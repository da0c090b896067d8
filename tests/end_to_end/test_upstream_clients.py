"""Every client that apps call engines with, against a real uvicorn in another process."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import aiohttp
import httpx
import pytest
from engine_clients import ASKED, CHAT, CLIENTS, COUNTED
from programs import LOOPBACK
from staged_vllm import PREFILL, QUEUE
from uvicorn_server import serving

from llm_trace import semconv as s
from llm_trace.core.clock import SYSTEM
from llm_trace.core.identity import TraceIdentity
from llm_trace.core.tracer import NoTracer
from llm_trace.testing import Recorder, Server, drive, response_body, response_start
from llm_trace.upstream import switch_off, switch_on

MS = 1_000_000
LIVE = SimpleNamespace(clock=SYSTEM)
IDENTITY = TraceIdentity(0xABC, 0xDEF)
WORDS = "onetwothree"


class Tracer(NoTracer):
    """Gives every request the same place."""

    def begin(self, _headers, _name):
        """The place."""
        return IDENTITY


@pytest.fixture(autouse=True)
def _watching():
    """The clients of this process are watched."""
    switch_on()
    yield
    switch_off()


@pytest.fixture(scope="module")
def engines(tmp_path_factory):
    """The staged engine with llm_trace, and without it."""
    started, folder = [], tmp_path_factory.mktemp("engines")
    names = {"told": "create", "untold": "untold", "compressed": "compressed"}
    yield {
        name: f"http://{LOOPBACK}:{serving(started, folder, f'staged_vllm:{factory}').port}"
        for name, factory in names.items()
    }
    for program in started:
        program.stop()


def served(work, **more):
    """The record of one request of an app that relays what `work` reads, and what it relayed."""
    recorder = Recorder()

    async def app(_scope, receive, send):
        await receive()
        await send(response_start("text/plain"))
        async for text in work():
            await send(response_body(text.encode(), more=True))
        await send(response_body())

    server = Server(json.dumps(ASKED).encode())
    asyncio.run(drive(app, recorder, clock=LIVE, server=server, tracer=Tracer(), **more))
    return recorder.record, server.body.decode()


def content(text):
    """The generated text in what a client gave: the words, events or a document."""
    if text in {WORDS, "one two three"}:
        return text
    if text.startswith("{"):
        return json.loads(text)["choices"][0]["message"]["content"]
    data = [line.removeprefix("data: ") for line in text.splitlines() if line]
    assert data[-1] == "[DONE]"
    choices = [choice for one in data[:-1] for choice in json.loads(one)["choices"]]
    return "".join(choice["delta"].get("content", "") for choice in choices)


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize("engine", ["told", "untold", "compressed"])
def test_a_streamed_call(name, engine, engines):
    """One call with its usage; split where the engine tells, and read clean in every way."""
    streams, _ = CLIENTS[name]

    record, text = served(lambda: streams(engines[engine], {}))

    (call,) = record.calls
    assert content(text) == WORDS
    assert (call.model, call.error_type, call.finish_reason) == ("staged", None, "stop")
    assert (call.usage.input_tokens, call.usage.output_tokens) == (7, 3)
    assert call.attributes[s.UPSTREAM_OUTCOME] == "ok"
    assert call.handed_off <= call.first_byte <= call.first_token <= call.last_token
    assert call.last_token <= call.returned
    if engine == "untold":
        assert record.ttft_phases[s.ENGINE] >= (QUEUE + PREFILL) * 1e9
        assert {s.NETWORK, s.QUEUE_WAIT}.isdisjoint(record.phases)
        return
    assert record.ttft_phases[s.QUEUE_WAIT] >= QUEUE * 1e9 - MS
    # An app that reads in pieces relays the first of them before the engine's token is whole.
    ahead = max(0, call.first_token - record.received - record.ttft)
    assert record.ttft_phases[s.PREFILL] + ahead >= PREFILL * 1e9 - MS
    assert record.ttft_phases[s.NETWORK] > 0
    assert sum(record.ttft_phases.values()) == record.ttft


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize("engine", ["told", "untold", "compressed"])
def test_an_answer_in_one_piece(name, engine, engines):
    """The same for a document."""
    _, whole = CLIENTS[name]

    record, text = served(lambda: whole(engines[engine], {}))

    (call,) = record.calls
    assert content(text) == "one two three"
    assert (call.usage.output_tokens, call.finish_reason, call.first_token) == (3, "stop", 0)
    assert call.attributes[s.UPSTREAM_OUTCOME] == "ok"
    if engine == "untold":
        assert {s.NETWORK, s.QUEUE_WAIT}.isdisjoint(record.phases)
        return
    assert record.phases[s.QUEUE_WAIT] >= QUEUE * 1e9 - MS
    assert record.phases[s.PREFILL] >= PREFILL * 1e9 - MS
    assert record.phases[s.NETWORK] > 0


@pytest.mark.parametrize("name", [name for name in CLIENTS if name.startswith("openai")])
@pytest.mark.parametrize("part", [0, 1])
def test_the_retries_of_the_openai_client_are_one_call(name, part, engines):
    """Two refusals and an answer: the app knows nothing of them, the call does."""
    staged = {"refusals": "2", "name": f"{name}-{part}"}

    record, text = served(lambda: CLIENTS[name][part](engines["told"], staged))

    (call,) = record.calls
    assert content(text).replace(" ", "") == WORDS
    assert call.attributes[s.UPSTREAM_FAILURES] == ("503", "503")
    assert call.attributes[s.HTTP_RESEND_COUNT] == 2
    lost = (call.sent - call.handed_off) / 1e9
    assert call.attributes[s.UPSTREAM_RETRY] == pytest.approx(lost, abs=0.01)
    assert call.error_type is None


@pytest.mark.parametrize("name", CLIENTS)
def test_outside_of_a_request_a_client_works_as_ever(name, engines):
    """The answer is the same, and nothing is asked for."""

    async def read():
        return "".join([text async for text in CLIENTS[name][0](engines["told"], {})])

    assert content(asyncio.run(read())) == WORDS


def test_what_the_engine_traces_is_a_child_of_the_call(engines):
    """Over httpx and aiohttp the wire carries the call's own span."""
    seen = []

    async def work():
        body = {**ASKED, **COUNTED}
        async with httpx.AsyncClient(trust_env=False) as client:
            response = await client.post(engines["told"] + CHAT, json=body)
            seen.append(response.headers["x-seen-parent"])
        async with (
            aiohttp.ClientSession() as session,
            session.post(engines["told"] + CHAT, data=json.dumps(body)) as response,
        ):
            seen.append(response.headers["x-seen-parent"])
            yield await response.text()

    record, _ = served(work)

    assert seen == [IDENTITY.traceparent(call.span_id) for call in record.calls]


def test_a_session_from_before_is_watched_and_left_when_switched_off(engines):
    """aiohttp: built before or after makes no difference, and nothing stays behind."""
    switch_off()
    original = aiohttp.ClientSession._request
    counts = []

    async def work():
        async with aiohttp.ClientSession() as session:
            for switch in (switch_on, switch_off):
                switch()
                async with session.post(engines["told"] + CHAT, json=ASKED) as response:
                    yield await response.text()

    record, _ = served(work)
    counts.append(len(record.calls))

    assert counts == [1]
    assert aiohttp.ClientSession._request is original


@pytest.mark.parametrize("client", ["httpx", "aiohttp"])
def test_a_stream_that_the_app_leaves(client, engines):
    """The call is cancelled, the connection is given up, and nothing hangs."""

    async def work():
        body = {**ASKED, **COUNTED}
        if client == "httpx":
            async with (
                httpx.AsyncClient(trust_env=False) as made,
                made.stream("POST", engines["told"] + CHAT, json=body) as response,
            ):
                yield (await anext(response.aiter_bytes()))[:20].decode()
        else:
            async with (
                aiohttp.ClientSession() as session,
                session.post(engines["told"] + CHAT, json=body) as response,
            ):
                yield (await response.content.readline()).decode()

    record, _ = served(work)

    (call,) = record.calls
    assert call.attributes[s.UPSTREAM_OUTCOME] in {"cancelled", "ok"}
    assert call.error_type is None
    assert call.returned


@pytest.mark.parametrize("name", ["httpx", "aiohttp"])
def test_a_client_that_waits_for_a_free_connection(name, engines):
    """A pool of one: the second call waits for the first one's end, and says that it did."""
    url = engines["told"] + CHAT

    async def by_httpx():
        limits = httpx.Limits(max_connections=1)
        async with httpx.AsyncClient(trust_env=False, limits=limits) as client:
            return await asyncio.gather(*(client.post(url, json=ASKED) for _ in range(2)))

    async def by_aiohttp():
        async def ask(session):
            async with session.post(url, json=ASKED) as response:
                return await response.read()

        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session:
            return await asyncio.gather(*(ask(session) for _ in range(2)))

    async def work():
        await {"httpx": by_httpx, "aiohttp": by_aiohttp}[name]()
        yield ""

    record, _ = served(work)

    first, second = sorted(call.attributes[s.UPSTREAM_CONNECT] for call in record.calls)
    assert second - first >= QUEUE + PREFILL - 0.01


@pytest.mark.parametrize("client", ["httpx", "aiohttp"])
def test_an_engine_that_is_not_there(client):
    """The client's own exception reaches the app, and the call names it."""
    url = f"http://{LOOPBACK}:9{CHAT}"
    caught = []

    async def work():
        try:
            if client == "httpx":
                async with httpx.AsyncClient(trust_env=False) as made:
                    await made.post(url, json=ASKED)
            else:
                async with aiohttp.ClientSession() as session:
                    await session.post(url, json=ASKED)
        except (httpx.ConnectError, aiohttp.ClientConnectorError) as error:
            caught.append(type(error).__name__)
        yield ""

    record, _ = served(work)

    (call,) = record.calls
    assert call.error_type.endswith(caught[0])
    assert call.attributes[s.UPSTREAM_OUTCOME] == "error"
