"""A RAG app in front of a real engine, in which a request can ask for a slowdown of its own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time

import httpx
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

import llm_trace

FIRST_TOKEN = re.compile(rb'"content":"[^"]')
SOURCES = b": " + b"source " * 9360 + b"\n\n"
"""64 KiB of what an app may send before its first token."""


def create():
    """Build the app, for uvicorn; `RAG_ENGINE` is the engine's URL."""
    app = FastAPI()
    app.state.engine = httpx.AsyncClient(
        base_url=os.environ["RAG_ENGINE"], trust_env=False, timeout=120
    )
    app.post("/v1/chat/completions")(_chat)
    return llm_trace.instrument(app)


async def _chat(request: Request):
    """Retrieve, then pass the engine's stream on; `planted` says what is slow this time."""
    body = await request.json()
    planted = body.pop("planted", {})
    llm_trace.admitted()
    async with llm_trace.retrieval(data_source="shelf") as span:
        await asyncio.sleep(planted.get("retrieval", 0.002))
        span.set(documents=3)
    answer = _answer(request.app.state.engine, body, planted)
    return StreamingResponse(answer, media_type="text/event-stream")


async def _answer(engine, body, planted):
    async with engine.stream("POST", "/v1/chat/completions", json=body) as response:
        if planted.get("dies"):
            raise RuntimeError("planted")
        async for chunk in response.aiter_bytes():
            if planted and FIRST_TOKEN.search(chunk):
                time.sleep(planted.get("block", 0))  # noqa: ASYNC251 - the planted fault
                for _ in range(planted.get("sources", 0)):
                    yield SOURCES
                planted = {}
            yield chunk


def stream(words, tokens, **planted):
    """The body of a streamed chat through the app."""
    from vllm_server import chat  # noqa: PLC0415 - the app's own process has no need of it

    usage = {"stream_options": {"include_usage": True}}
    return json.dumps({**chat(words, tokens, **usage), "planted": planted}).encode()


async def read_slowly(connection, words):
    """Ask for more than sockets hold, and read none of it for a second."""
    answer = await connection.begin("/v1/chat/completions", stream(words, 4, sources=200))
    await asyncio.sleep(1)  # the planted fault
    while not answer.complete():
        await connection.read_some(answer)
