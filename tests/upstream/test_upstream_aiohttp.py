"""Calls made with aiohttp: the rarer ways of a session, against a server of aiohttp's own."""

from __future__ import annotations

import gc
import json
import weakref

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from staged_engine import BODY, DONE, STOP, event, serve

from llm_trace import semconv as s
from llm_trace.core.inband import END, FIRST_TOKEN, comment, server_timing

pytestmark = pytest.mark.usefixtures("_watching")

PATH = "/v1/chat/completions"
TOLD = {"content-type": "text/event-stream", "x-llm-trace-ledger": "1"}


def called(answer, ask, clock, **session):
    """The record of a request in which `ask` calls a server that gives `answer`, and its bytes."""

    async def work():
        app = web.Application()
        app.router.add_post(PATH, answer)
        async with (
            TestServer(app) as server,
            aiohttp.ClientSession(server.make_url("/"), **session) as made,
        ):
            async for data in ask(made):
                yield data

    return serve(work, clock)


def streaming(*parts, breaks=False):
    """An answer in parts, of which each is sent by itself."""

    async def answer(request):
        response = web.StreamResponse(headers=TOLD)
        await response.prepare(request)
        for part in parts:
            await response.write(part)
        if breaks:
            request.transport.abort()
        return response

    return answer


PARTS = (comment(FIRST_TOKEN, {}) + event("a"), event("b"), STOP, comment(END, {}) + DONE)
CLEAN = event("a") + event("b") + STOP + DONE


async def posted(session):
    """One call, of which nothing is read yet."""
    return await session.post(PATH, json=BODY)


def test_reading_without_waiting(clock):
    """What is there is watched, and read clean, too."""

    async def ask(session):
        response = await posted(session)
        first = await response.content.readline()
        await response.content.wait_eof()
        yield first + response.content.read_nowait()
        response.close()

    record, body = called(streaming(*PARTS), ask, clock)

    (call,) = record.calls
    assert body == CLEAN
    assert (call.attributes[s.UPSTREAM_OUTCOME], call.finish_reason) == ("ok", "stop")


def test_the_reader_is_still_aiohttps(clock):
    """What tells readers by their class knows it, and what is not about reading is the reader's."""

    async def ask(session):
        response = await posted(session)
        content = response.content
        assert isinstance(content, aiohttp.StreamReader)
        assert content.exception() is None
        assert not content.at_eof()
        yield await response.read()
        assert content.at_eof()
        assert content.total_bytes > 0

    _, body = called(streaming(*PARTS), ask, clock)

    assert body == CLEAN


def test_a_bound_of_the_reader_may_be_set(clock):
    """As apps do whose lines are longer than aiohttp lets them be."""
    long = b"data: " + b"x" * 300_000 + b"\n\n"

    async def ask(session):
        response = await posted(session)
        response.content._high_water = 10**6
        yield await response.content.readline()
        response.close()

    _, body = called(streaming(long), ask, clock)

    assert body == long[:-1]


def test_a_url_that_is_none_is_the_sessions_to_refuse(clock):
    """The app gets aiohttp's own exception, and it is no fault of ours."""
    caught = []

    async def ask(session):
        try:
            await session.post("http://[::1/v1/chat/completions", json=BODY)
        except aiohttp.InvalidURL as error:
            caught.append(error)
        yield b""

    record, _ = called(streaming(), ask, clock)

    assert (1, ()) == (len(caught), record.calls)


def test_an_answer_without_a_body(clock):
    """There is nothing to wait for."""

    async def answer(_request):
        return web.Response(status=503)

    async def ask(session):
        async with session.post(PATH, json=BODY):
            yield b""

    record, _ = called(answer, ask, clock)

    (call,) = record.calls
    assert (call.error_type, call.attributes[s.UPSTREAM_OUTCOME]) == ("503", "error")


async def dropped(session):
    """Tries until it gets an answer, and lets go of no refusal."""
    while (response := await posted(session)).status != 200:
        pass
    yield await response.read()


async def nested(session):
    """Tries again while it still holds the refusal."""
    async with session.post(PATH, json=BODY) as response:
        if response.status == 200:
            yield await response.read()
            return
        async for data in nested(session):
            yield data


@pytest.mark.parametrize("ask", [dropped, nested])
def test_a_refusal_is_over_with_its_head(ask, clock):
    """What is tried after it is the same call, whenever the app lets go of the refusal."""
    refusals = [web.Response(status=503, body=b"{}" * 99_999, content_type="application/json")]

    async def answer(_request):
        return refusals.pop() if refusals else web.json_response({"id": "r1"})

    record, body = called(answer, ask, clock)

    (call,) = record.calls
    assert body == b'{"id": "r1"}'
    assert call.attributes[s.UPSTREAM_FAILURES] == ("503",)
    assert (call.error_type, call.attributes[s.UPSTREAM_OUTCOME]) == (None, "ok")
    assert call.attributes[s.RESPONSE_ID] == "r1"


def test_a_refusal_that_is_not_read_is_one(clock):
    """An app that looks at the status only, and forgets the answer."""

    async def answer(_request):
        return web.json_response({}, status=429)

    async def ask(session):
        yield str((await posted(session)).status).encode()

    record, _ = called(answer, ask, clock)

    (call,) = record.calls
    assert (call.error_type, call.attributes[s.UPSTREAM_OUTCOME]) == ("429", "rejected")
    assert call.returned


def test_a_session_that_raises_for_a_status(clock):
    """The app gets the session's own exception, and the call says what the engine said."""
    caught = []

    async def answer(_request):
        return web.json_response({"error": {}}, status=429)

    async def ask(session):
        try:
            await posted(session)
        except aiohttp.ClientResponseError as error:
            caught.append(error.status)
        yield b""

    record, _ = called(answer, ask, clock, raise_for_status=True)

    (call,) = record.calls
    assert caught == [429]
    assert (call.error_type, call.attributes[s.UPSTREAM_OUTCOME]) == ("429", "rejected")
    assert call.attributes[s.HTTP_STATUS] == 429


def test_a_stream_that_breaks(clock):
    """The app gets aiohttp's own exception."""
    caught = []

    async def ask(session):
        response = await posted(session)
        try:
            async for data in response.content.iter_any():
                yield data
        except aiohttp.ClientPayloadError as error:
            caught.append(error)
        finally:
            response.close()

    record, _ = called(streaming(event("a"), breaks=True), ask, clock)

    (call,) = record.calls
    assert len(caught) == 1
    assert call.error_type == "aiohttp.client_exceptions.ClientPayloadError"
    assert call.attributes[s.UPSTREAM_OUTCOME] == "error"


@pytest.mark.parametrize("data", [json.dumps(BODY), json.dumps(BODY).encode()])
def test_a_body_that_the_app_has_encoded(data, clock):
    """As text or as bytes: the model is read from it."""

    async def ask(session):
        async with session.post(PATH, data=data) as response:
            yield await response.read()

    record, _ = called(streaming(*PARTS), ask, clock)

    assert [call.model for call in record.calls] == ["qwen"]


def test_the_apps_headers_are_sent_as_they_are(clock):
    """Given in any form, several of one name, and left alone."""
    seen = []
    given = [("X-Own", "1"), ("X-Own", "2")]

    async def answer(request):
        seen.extend(request.headers.getall("x-own"))
        seen.append(request.headers["x-llm-trace-ledger"])
        return web.json_response({})

    async def ask(session):
        async with session.post(PATH, json=BODY, headers=given) as response:
            yield await response.read()

    called(answer, ask, clock)

    assert seen == ["1", "2", "1"]
    assert given == [("X-Own", "1"), ("X-Own", "2")]


def test_an_engine_with_timings_of_its_own_is_told_apart(clock):
    """Its ledger in a second header is read; the app gets the first, by every way of aiohttp's."""
    seen = []

    async def answer(_request):
        response = web.json_response({}, headers={"Server-Timing": "db;dur=7"})
        response.headers.add("Server-Timing", server_timing({s.PREFILL: 1_000}))
        response.headers["X-LLM-Trace-Ledger"] = "1"
        return response

    async def ask(session):
        async with session.post(PATH, json=BODY) as response:
            seen.extend(response.headers.getall("server-timing"))
            seen.extend(pair for pair in response.raw_headers if pair[0] != b"Date")
            yield await response.read()

    record, _ = called(answer, ask, clock)

    (call,) = record.calls
    assert call.inside.phases == {s.PREFILL: 1_000}
    assert seen[0] == "db;dur=7"
    assert {b"Server-Timing": b"db;dur=7"}.items() <= dict(seen[1:]).items()
    assert b"X-LLM-Trace-Ledger" not in dict(seen[1:])


def test_an_answer_that_the_app_forgets_is_forgotten(clock):
    """Nothing of ours keeps it alive: it goes with the last that the app knows of it."""
    kept = []

    async def ask(session):
        response = await posted(session)
        await response.read()
        kept.append(weakref.ref(response))
        gc.disable()
        del response
        yield b""

    try:
        called(streaming(*PARTS), ask, clock)
        assert kept[0]() is None
    finally:
        gc.enable()
