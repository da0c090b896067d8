"""Endpoints of every kind that an app may have, and who notes what a server sees of them."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import (
    FileResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route, WebSocketRoute

TOKEN = b'data: {"choices": [{"delta": {"content": "word "}}]}\n\n'
DONE = b"data: [DONE]\n\n"
_TRACE_CONTEXT = {b"traceparent", b"tracestate"}
"""The only headers that an app sees otherwise: they name our span."""


async def _tokens(number, breaks_after=None):
    for n in range(number):
        if n == breaks_after:
            raise LookupError("mid-stream")
        yield TOKEN
        await asyncio.sleep(0)
    yield DONE


async def _chat(request):
    body = await request.json()
    if not body.get("stream"):
        return JSONResponse({"id": "x", "model": "m", "choices": [{"message": {"content": "hi"}}]})
    return StreamingResponse(_tokens(body.get("n", 3)), media_type="text/event-stream")


async def _echo(request):
    seen = [name for name, _ in request.scope["headers"] if name not in _TRACE_CONTEXT]
    return Response(await request.body(), headers={"x-seen": repr(seen)})


def _cookies(_request):
    answer = PlainTextResponse("c")
    answer.raw_headers += [(b"Set-Cookie", b"a=1"), (b"X-Odd", b"\xe9"), (b"set-cookie", b"b=2")]
    return answer


def _crash(_request):
    raise LookupError("at once")


async def _lines(_request):
    async def lines():
        for n in range(3):
            yield b'{"message": {"content": "%d"}, "done": false}\n' % n
        yield b'{"done": true}\n'

    return StreamingResponse(lines(), media_type="application/x-ndjson")


def _late_crash(_request):
    return StreamingResponse(_tokens(3, breaks_after=2), media_type="text/event-stream")


def _background(_request):
    return PlainTextResponse("b", background=BackgroundTask(asyncio.sleep, 0.001))


async def _echo_socket(socket):
    await socket.accept(subprotocol="x")
    await socket.send_text(await socket.receive_text())
    await socket.close(4001)


class _Plain:
    """Raw ASGI: what no framework sends."""

    def __init__(self, *messages, held=False):
        self.messages, self.held = messages, held

    async def __call__(self, _scope, receive, send):
        for message in self.messages:
            await send(dict(message))
        while self.held and (await receive())["type"] != "http.disconnect":
            pass


def _start(content_type=b"text/event-stream", **more):
    headers = [(b"content-type", content_type)]
    return {"type": "http.response.start", "status": 200, "headers": headers, **more}


def _body(body=b"", *, more=True):
    return {"type": "http.response.body", "body": body, "more_body": more}


_TRAILED = _Plain(
    _start(trailers=True),
    _body(TOKEN),
    _body(more=False),
    {"type": "http.response.trailers", "headers": [(b"x-sum", b"1")], "more_trailers": False},
)
HELD = _Plain(_start(), _body(TOKEN), _body(TOKEN), held=True)
_EMPTY_PARTS = _Plain(_start(b"text/plain"), _body(), _body(b"a"), _body(), _body(more=False))
_ABANDONED = _Plain(_start(), _body(TOKEN))


async def _pass_on(request, call_next):
    answer = await call_next(request)
    answer.headers["x-passed"] = "yes"
    return answer


_ROUTES = (
    Route("/plain", lambda _: PlainTextResponse("plain")),
    Route("/empty", lambda _: Response(status_code=204)),
    Route("/unmodified", lambda _: Response(status_code=304, headers={"etag": "x"})),
    Route("/redirect", lambda _: RedirectResponse("/plain")),
    Route("/cookies", _cookies),
    Route("/crash", _crash),
    Route("/late-crash", _late_crash),
    Route("/lines", _lines),
    Route("/file", lambda _: FileResponse(Path(__file__))),
    Route("/background", _background),
    Route("/refused", lambda _: PlainTextResponse("no", 401), methods=["POST"]),
    Route("/echo", _echo, methods=["POST"]),
    Route("/v1/chat/completions", _chat, methods=["POST"]),
    Route("/big", lambda _: StreamingResponse(iter([b"x" * 65_536] * 8))),
    WebSocketRoute("/socket", _echo_socket),
    Mount("/trailed", _TRAILED),
    Mount("/held", HELD),
    Mount("/parts", _EMPTY_PARTS),
    Mount("/abandoned", _ABANDONED),
)


def zoo():
    """The app: all of it plain, and again under compression, CORS and a `BaseHTTPMiddleware`."""
    wrapped = Starlette(
        routes=list(_ROUTES),
        middleware=[
            Middleware(CORSMiddleware, allow_origins=["*"], allow_methods=["*"]),
            Middleware(GZipMiddleware, minimum_size=10),
            Middleware(BaseHTTPMiddleware, dispatch=_pass_on),
        ],
    )
    return Starlette(routes=[*_ROUTES, Mount("/wrapped", wrapped)])


class Witness:
    """Stands where the server stands and notes each call and what came of it, by request."""

    def __init__(self, app):
        self.app = app
        self._logs = {}
        self._ended = {}

    def ended(self, name):
        """The event that the request has ended; made by whoever asks first."""
        return self._ended.setdefault(name, threading.Event())

    def log(self, name):
        """All that was noted of a request that has ended."""
        assert self.ended(name).wait(30), f"request {name} never ended"
        return self._logs[name]

    async def __call__(self, scope, receive, send):
        """Serve one scope."""
        name = dict(scope.get("headers", ())).get(b"x-name", b"").decode()
        log = self._logs[name] = []

        async def noted_receive():
            log.append("asks")
            message = await receive()
            log.append(("gets", message["type"]))
            return message

        async def noted_send(message):
            log.append(("sends", *_shown(message)))
            await send(message)

        try:
            await self.app(scope, noted_receive, noted_send)
        except BaseException as error:
            log.append(("raises", type(error).__name__))
            raise
        finally:
            log.append("ends")
            self.ended(name).set()


def _shown(message):
    return [(k, bytes(v) if k == "body" else repr(v)) for k, v in sorted(message.items())]
