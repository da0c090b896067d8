"""An app that answers with an engine's answer, called as apps do, with no word of llm_trace in it.

For uvicorn: `relays:create`; `RELAY_ENGINE` is the engine's URL. The first part of the path names
the client; `/agent` asks the engine twice.
"""

from __future__ import annotations

import os

import aiohttp
import httpx
import openai
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse

import llm_trace

PATH = "/v1/chat/completions"
ENGINE = os.environ.get("RELAY_ENGINE", "")
STREAM = {"media_type": "text/event-stream"}


def create():
    """Build the app."""
    app = FastAPI()
    for name, answer in (("httpx", _httpx), ("openai", _openai), ("aiohttp", _aiohttp)):
        app.post(f"/{name}{PATH}")(_answered(answer))
    app.post(f"/threads{PATH}")(_threads)
    app.post(f"/openai-threads{PATH}")(_openai_threads)
    app.post(f"/agent{PATH}")(_agent)
    app.post(f"/whole{PATH}")(_whole)
    return llm_trace.instrument(app)


def _answered(answer):
    async def endpoint(request: Request):
        return StreamingResponse(answer(await request.json()), **STREAM)

    return endpoint


async def _httpx(body):
    async with (
        httpx.AsyncClient(base_url=ENGINE, trust_env=False, timeout=120) as client,
        client.stream("POST", PATH, json=body) as response,
    ):
        async for data in response.aiter_bytes():
            yield data


async def _openai(body):
    async with openai.AsyncOpenAI(base_url=f"{ENGINE}/v1", api_key="none") as client:
        extra = {"ignore_eos": body.pop("ignore_eos", None)}
        async for chunk in await client.chat.completions.create(**body, extra_body=extra):
            yield f"data: {chunk.model_dump_json()}\n\n"
    yield "data: [DONE]\n\n"


async def _aiohttp(body):
    async with (
        aiohttp.ClientSession(ENGINE) as session,
        session.post(PATH, json=body) as response,
    ):
        async for data in response.content.iter_any():
            yield data


def _threads(body: dict):
    """An endpoint that is no coroutine: it runs in a thread, and each step of its stream in one."""

    def answer():
        with (
            httpx.Client(base_url=ENGINE, trust_env=False, timeout=120) as client,
            client.stream("POST", PATH, json=body) as response,
        ):
            yield from response.iter_bytes()

    return StreamingResponse(answer(), **STREAM)


def _openai_threads(body: dict):
    def answer():
        with openai.OpenAI(base_url=f"{ENGINE}/v1", api_key="none") as client:
            for chunk in client.chat.completions.create(**body):
                yield f"data: {chunk.model_dump_json()}\n\n"
        yield "data: [DONE]\n\n"

    return StreamingResponse(answer(), **STREAM)


async def _agent(request: Request):
    """Rewrite the question first, then answer it."""
    body = await request.json()
    async with httpx.AsyncClient(base_url=ENGINE, trust_env=False, timeout=120) as client:
        plain = {k: v for k, v in body.items() if k not in {"stream", "stream_options"}}
        rewritten = (await client.post(PATH, json=plain | {"max_tokens": 8})).json()
    words = rewritten["choices"][0]["message"]["content"] or "?"
    body["messages"].append({"role": "user", "content": f"rewritten: {words}"})
    return StreamingResponse(_httpx(body), **STREAM)


async def _whole(request: Request):
    async with httpx.AsyncClient(base_url=ENGINE, trust_env=False, timeout=120) as client:
        answer = await client.post(PATH, json=await request.json())
    return JSONResponse(answer.json(), answer.status_code)
