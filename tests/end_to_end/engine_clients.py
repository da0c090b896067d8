"""The ways in which apps call an engine: each an async generator of what it read, as text."""

from __future__ import annotations

import asyncio
from importlib import import_module
from importlib.util import find_spec

import aiohttp
import httpx
import openai

CHAT = "/v1/chat/completions"
ASKED = {"model": "staged", "messages": [{"role": "user", "content": "hi"}]}
COUNTED = {"stream": True, "stream_options": {"include_usage": True}}


def _body(staged, **more):
    return {**ASKED, "metadata": staged, **more}


def _httpx(module):
    async def streams(base, staged):
        with module.Client(base_url=base, trust_env=False) as client:
            body = _body(staged, **COUNTED)
            with client.stream("POST", CHAT, json=body) as response:
                for line in response.iter_lines():
                    yield f"{line}\n"

    async def whole(base, staged):
        with module.Client(base_url=base, trust_env=False) as client:
            yield client.post(CHAT, json=_body(staged)).text

    return streams, whole


def _async_httpx(module):
    async def streams(base, staged):
        async with module.AsyncClient(base_url=base, trust_env=False) as client:
            body = _body(staged, **COUNTED)
            async with client.stream("POST", CHAT, json=body) as response:
                async for data in response.aiter_bytes():
                    yield data.decode()

    async def whole(base, staged):
        async with module.AsyncClient(base_url=base, trust_env=False) as client:
            yield (await client.post(CHAT, json=_body(staged))).text

    return streams, whole


def _extra(staged, *, stream=False, **more):
    """For clients of an age that does not know every field."""
    return {**ASKED, "stream": stream, "extra_body": {"metadata": staged, **more}}


def _openai():
    def client(base):
        return openai.OpenAI(base_url=f"{base}/v1", api_key="none", max_retries=2)

    async def streams(base, staged):
        with client(base) as made:
            body = _extra(staged, **COUNTED)
            for chunk in made.chat.completions.create(**body):
                for choice in chunk.choices:
                    yield choice.delta.content or ""

    async def whole(base, staged):
        with client(base) as made:
            yield made.chat.completions.create(**_extra(staged)).choices[0].message.content

    return streams, whole


def _async_openai(**given):
    def client(base):
        given_now = {name: make() for name, make in given.items()}
        return openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="none", max_retries=2, **given_now)

    async def streams(base, staged):
        async with client(base) as made:
            body = _extra(staged, **COUNTED)
            async for chunk in await made.chat.completions.create(**body):
                for choice in chunk.choices:
                    yield choice.delta.content or ""

    async def whole(base, staged):
        async with client(base) as made:
            answer = await made.chat.completions.create(**_extra(staged))
            yield answer.choices[0].message.content

    return streams, whole


async def _any(content):
    async for data in content.iter_any():
        yield data


async def _chunked(content):
    async for data in content.iter_chunked(7):
        yield data


async def _chunks(content):
    async for data, _ in content.iter_chunks():
        yield data


async def _lines(content):
    async for line in content:
        yield line


async def _until(content):
    while data := await content.readuntil(b"\n\n"):
        yield data


async def _all(content):
    yield await content.read()


async def _exactly(content):
    held = b""
    while True:
        try:
            held += await content.readexactly(1)
        except asyncio.IncompleteReadError:
            return
        if held.endswith(b"\n\n"):
            yield held
            held = b""


def _aiohttp(read):
    async def streams(base, staged):
        async with aiohttp.ClientSession(base) as session:
            body = _body(staged, **COUNTED)
            async with session.post(CHAT, json=body) as response:
                async for data in read(response.content):
                    yield data.decode()

    async def whole(base, staged):
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{base}{CHAT}", json=_body(staged)) as response,
        ):
            yield await response.text()

    return streams, whole


LIBRARIES = [name for name in ("httpx", "httpx2") if find_spec(name)]
READS = (_any, _chunked, _chunks, _lines, _until, _all, _exactly)

CLIENTS = {
    **{name: _httpx(import_module(name)) for name in LIBRARIES},
    **{f"{name} async": _async_httpx(import_module(name)) for name in LIBRARIES},
    "openai": _openai(),
    "openai async": _async_openai(),
    "openai over legacy httpx": _async_openai(http_client=httpx.AsyncClient),
    **{f"aiohttp{read.__name__}": _aiohttp(read) for read in READS},
}
