"""Field reports 4 to 16: ASGI, Starlette, streaming. Each by the smallest input that shows it."""

from __future__ import annotations

import asyncio

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from reported import DONE, MS, TOKEN, Traced, seconds
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient

import llm_trace
from llm_trace import semconv as s

CHAT = "/v1/chat/completions"
DURATION = f"{s.REQUEST_DURATION.prometheus}_sum"


def chat(answer, *more):
    """A Starlette app whose chat route gives what `answer` makes."""
    return Starlette(routes=[Route(CHAT, answer, methods=["POST"]), *more])


def stream(*chunks, **more):
    """A streamed answer."""
    return StreamingResponse(iter(chunks), media_type="text/event-stream", **more)


@pytest.mark.parametrize("chunks", [1, 500])
@pytest.mark.parametrize("messages", [1, 20])
def test_04_the_number_of_spans_does_not_depend_on_messages(chunks, messages):
    """A stream of 500 chunks and an upload of 20 messages are as many spans as one of each."""

    async def answer(request):
        await request.body()
        return stream(*[TOKEN] * chunks, DONE)

    upload = [{"type": "http.request", "body": b"x", "more_body": True}] * (messages - 1)
    traced = Traced(chat(answer))

    traced.ask(chunks=[*upload, {"type": "http.request", "body": b"x"}])

    names = [span.name for span in traced.spans()]
    assert len(names) == len(set(names)) <= 4


def test_05_span_and_metric_end_when_the_stream_ends():
    """Four chunks 100 ms apart: both say 400 ms, by the same stamp, after the handler returned."""

    async def tokens():
        for _ in range(4):
            traced.clock.advance(100 * MS)
            yield TOKEN
        yield DONE

    traced = Traced(chat(lambda _: StreamingResponse(tokens(), media_type="text/event-stream")))
    traced.ask()

    assert (0.4, 0.4) == (seconds(traced.root), traced.total(DURATION))


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("streams", [False, True])
def test_06_background_tasks_are_not_the_requests(fails, streams):
    """Span and metric end at the last byte, and a task that fails does not change the outcome."""

    async def late():
        traced.clock.advance(1000 * MS)
        llm_trace.annotate(late=True)
        if fails:
            raise ValueError("too late")

    def answer(_request):
        task = BackgroundTask(late)
        return stream(TOKEN, DONE, background=task) if streams else Response(background=task)

    traced = Traced(chat(answer))
    server = traced.ask()

    assert (0, 0) == (seconds(traced.root), traced.total(DURATION))
    assert ("ok", False) == (traced.root.attributes[s.OUTCOME], "late" in traced.root.attributes)
    assert fails is isinstance(server.fault, ValueError)


def test_07_a_failure_after_the_first_bytes_is_an_error():
    """200 was sent, and yet it is one, by the type of what was raised, which goes on untouched."""
    boom = ValueError("x")

    async def tokens():
        yield TOKEN
        raise boom

    traced = Traced(chat(lambda _: StreamingResponse(tokens(), media_type="text/event-stream")))
    server = traced.ask()

    root = traced.root
    raised = server.fault.exceptions[0] if hasattr(server.fault, "exceptions") else server.fault
    assert raised is boom
    assert (200, "ValueError") == (root.attributes[s.HTTP_STATUS], root.attributes[s.ERROR_TYPE])
    assert not root.status.is_ok
    assert [200] == [m["status"] for m in server.sent if m["type"] == "http.response.start"]
    assert {"error"} == {key[3] for key in traced.samples(s.REQUESTS.prometheus)}


def test_08_the_body_is_only_watched_as_the_app_reads_it():
    """In three messages, of an endpoint that streams until its client leaves: all as without us."""
    app = FastAPI()

    async def until_left(request):
        yield TOKEN
        while True:
            await asyncio.sleep(0)
            if await request.is_disconnected():
                return

    async def answer(request: Request):
        body = await request.json()
        assert body == {"model": "m", "stream": True}
        return StreamingResponse(until_left(request), media_type="text/event-stream")

    app.post(CHAT, response_model=None)(answer)
    parts = [b'{"model": "m",', b' "stream":', b" true}"]
    chunks = [{"type": "http.request", "body": part, "more_body": True} for part in parts[:2]]
    chunks += [{"type": "http.request", "body": parts[2]}, {"type": "http.disconnect"}]
    traced = Traced(app)

    server = traced.ask(chunks=chunks)

    assert server.fault is None
    attributes = traced.root.attributes
    assert ("m", "cancelled") == (attributes[s.REQUEST_MODEL], attributes[s.OUTCOME])


def test_08_a_body_too_large_to_copy_costs_only_the_model():
    """The endpoint gets all of it."""

    async def answer(request):
        return JSONResponse(len(await request.body()))

    traced = Traced(chat(answer))
    server = traced.ask(body=b'{"model": "m"}' + b" " * 100_000)

    assert server.body == b"100014"
    assert s.REQUEST_MODEL not in traced.root.attributes


def test_09_receive_is_called_as_often_as_by_the_app():
    """Never for a 401 that does not read: neither a disconnect nor 100 Continue is stolen."""
    traced = Traced(chat(lambda _: PlainTextResponse("no", 401)))

    server = traced.ask()

    assert (0, "rejected") == (server.received, traced.root.attributes[s.OUTCOME])


def test_10_the_request_is_found_from_handlers_and_generators():
    """Under a `BaseHTTPMiddleware` too, whose tasks have contexts of their own."""

    async def tokens():
        with llm_trace.phase("late"):
            yield TOKEN
        yield DONE

    async def answer(_request):
        with llm_trace.retrieval(data_source="early"):
            return StreamingResponse(tokens(), media_type="text/event-stream")

    async def pass_on(request, call_next):
        return await call_next(request)

    app = chat(answer)
    app.add_middleware(BaseHTTPMiddleware, dispatch=pass_on)
    traced = Traced(app)
    traced.ask()

    parents = {span.name: span.parent.span_id for span in traced.spans() if span.parent}
    root = traced.root.context.span_id
    assert (root, root) == (parents["retrieval early"], parents["late"])


@pytest.mark.parametrize("root_path", ["", "/proxy"])
def test_11_the_route_is_its_template_below_a_mount(root_path):
    """With and without a proxy's prefix; what nobody routes has none."""
    app, inner = FastAPI(), FastAPI()
    inner.get("/items/{i}")(lambda i: i)
    app.mount("/v1", inner)
    traced = Traced(app)

    for path in ("/v1/items/1", "/none"):
        traced.ask(f"{root_path}{path}", method="GET", root_path=root_path)

    routes = [span.attributes.get(s.HTTP_ROUTE) for span in traced.roots()]
    assert ["/v1/items/{i}", None] == routes


@pytest.mark.parametrize("media", ["text/event-stream", "application/x-ndjson"])
@pytest.mark.parametrize("outside", [False, True])
def test_12_compression_never_makes_a_first_token(media, outside):
    """Compressed inside us it is said that tokens cannot be seen; outside of us they are seen."""
    line = b'{"message": {"content": "a"}, "done": false}\n'
    token = TOKEN if media == "text/event-stream" else line
    app = chat(lambda _: StreamingResponse(iter([token] * 9), media_type=media))
    traced = Traced(app if outside else GZipMiddleware(app, minimum_size=1))
    if outside:
        traced.app = GZipMiddleware(traced.app, minimum_size=1)

    server = traced.ask(headers=[(b"accept-encoding", b"gzip")])

    attributes = traced.root.attributes
    encoded = (b"content-encoding", b"gzip") in server.sent[0]["headers"]
    hidden = encoded and not outside
    assert encoded is (media != "text/event-stream")
    assert hidden is (s.TTFT not in attributes)
    assert hidden is (attributes.get(s.FIRST_TOKEN_OBSERVABLE) is False)


def test_14_websockets_and_lifespan_are_no_requests():
    """They pass with what the server gave: no span, no metric, a thousand messages and an end."""

    async def echo(socket):
        await socket.accept()
        for _ in range(1000):
            await socket.send_text(await socket.receive_text())
        await socket.close(1006)

    traced = Traced(chat(lambda _: Response(), WebSocketRoute("/socket", echo)))

    with TestClient(traced.app) as client, client.websocket_connect("/socket") as socket:
        for number in range(1000):
            socket.send_text(str(number))
            assert socket.receive_text() == str(number)

    assert ([], 0) == (list(traced.spans()), traced.total(s.REQUESTS.prometheus))


def test_15_probes_preflights_and_scrapes_are_neither_spans_nor_samples():
    """Around one chat request only that one is there, and HEAD has no first token."""
    traced = Traced(chat(lambda _: stream(TOKEN, DONE)))
    around = [
        ("OPTIONS", CHAT),
        ("HEAD", CHAT),
        ("GET", "/health"),
        ("GET", "/metrics"),
        ("GET", "/v1/models"),
    ]

    for method, path in [*around, ("POST", CHAT), *around]:
        traced.ask(path, method=method)

    assert len(traced.roots()) == 1
    assert traced.total(s.REQUESTS.prometheus) == 1
    assert traced.total(f"{s.TIME_TO_FIRST_TOKEN.prometheus}_count") == 1


def test_16_the_middleware_added_twice_watches_once():
    """On the app and on one mounted in it: one span and one sample a request."""
    inner = Traced(chat(lambda _: stream(TOKEN, DONE)))
    outer = Traced(Starlette())
    outer.app.app.mount("/sub", inner.app)

    outer.ask(f"/sub{CHAT}")

    assert (1, 0) == (len(outer.roots()), len(inner.roots()))
    assert (1, 0) == tuple(x.total(s.REQUESTS.prometheus) for x in (outer, inner))
