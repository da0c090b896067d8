"""The apps that real uvicorn processes serve: `create` is instrumented, `bare` is the same app."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import tempfile
import time

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.background import BackgroundTask

import llm_trace
from llm_trace.core.clock import SYSTEM

MODEL = "staged"


def bare():
    """The app by itself."""
    app = FastAPI()
    app.post("/v1/chat/completions")(_chat)
    app.get("/background")(_background_done)
    return app


def create():
    """The app under `instrument`."""
    return llm_trace.instrument(bare())


def too_late():
    """The same in a process that learns of the workers' directory when it has the library."""
    importlib.import_module("prometheus_client")
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.gettempdir()
    return create()


def blocking():
    """The app under `instrument`, with a route that blocks the loop and one that floods."""
    app = create()
    app.post("/v1/completions")(_blocking)
    app.post("/api/generate")(_flood)
    return app


async def _blocking(request: Request):
    """Answer after a synchronous call of the body's length, in ms, as careless code does."""
    time.sleep((await request.json())["ms"] / 1e3)  # noqa: ASYNC251 - the fault that is staged
    return StreamingResponse(_tokens({"tokens": 2}), media_type="text/event-stream")


async def _flood(request: Request):
    """Stream far more than the buffers between server and client hold."""
    number, word = (await request.json())["tokens"], "x" * 4_000

    async def tokens():
        with llm_trace.engine_call("chat", MODEL):
            for _ in range(number):
                yield _event({"delta": {"content": word}, "finish_reason": None})
        yield "data: [DONE]\n\n"

    return StreamingResponse(tokens(), media_type="text/event-stream")


def with_middleware():
    """The app under `add_middleware`."""
    app = bare()
    app.add_middleware(llm_trace.TraceMiddleware)
    return app


def wrapped():
    """The app inside the middleware, wrapped by hand: its own lifespan is not seen to be one."""
    return llm_trace.TraceMiddleware(bare())


_background = {"ended": 0}


async def _background_done():
    """When the last background task ended, in Unix ns."""
    return JSONResponse(_background)


async def _chat(request: Request):
    """Stream an answer; the body says how it is staged."""
    body = await request.json()
    with llm_trace.retrieval(data_source="shelf"):
        await asyncio.sleep(0.001)
    task = BackgroundTask(_tidy_up, body["background"]) if "background" in body else None
    return StreamingResponse(_tokens(body), media_type="text/event-stream", background=task)


async def _tokens(body):
    with llm_trace.engine_call("chat", MODEL) as call:
        call.mark("queued")
        call.mark("scheduled")
        call.mark("first_token")
        for number in range(body.get("tokens", 3)):
            if number == body.get("dies_after"):
                raise ConnectionAbortedError("the engine is gone")
            yield _event({"delta": {"content": f"word{number} "}, "finish_reason": None})
            await asyncio.sleep(body.get("pause", 0))
    yield _event({"delta": {}, "finish_reason": "stop"})
    yield "data: [DONE]\n\n"


def _event(choice):
    event = {"object": "chat.completion.chunk", "model": MODEL, "choices": [{"index": 0, **choice}]}
    return f"data: {json.dumps(event)}\n\n"


async def _tidy_up(seconds):
    await asyncio.sleep(seconds)
    _background["ended"] = SYSTEM.wall_ns()
