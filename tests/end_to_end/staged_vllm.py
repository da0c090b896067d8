"""An engine for the tests of its clients: OpenAI's wire format, with moments that take their time.

`python -m uvicorn --factory staged_vllm:create`. The body's `metadata` stages the answer.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter

from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

import llm_trace

QUEUE = 0.02
PREFILL = 0.03
MODEL = "staged"
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}

_asked = Counter()


def untold():
    """The engine without llm_trace."""
    return Starlette(routes=[Route("/v1/chat/completions", _chat, methods=["POST"])])


def create():
    """The engine under `instrument`."""
    return llm_trace.instrument(untold())


def compressed():
    """The same behind a compressor, which is outside of the middleware."""
    return GZipMiddleware(llm_trace.TraceMiddleware(untold()), minimum_size=1)


async def _chat(request: Request):
    body = await request.json()
    staged = body.get("metadata") or {}
    _asked[staged.get("name")] += 1
    seen = {"x-seen-parent": request.headers.get("traceparent", "")}
    if _asked[staged.get("name")] <= int(staged.get("refusals", 0)):
        refusal = {"error": {"type": "Overloaded", "message": "busy"}}
        return JSONResponse(refusal, 503, headers={**seen, "retry-after-ms": "1"})
    if body.get("stream"):
        return StreamingResponse(_events(staged), media_type="text/event-stream", headers=seen)
    async with llm_trace.engine_call("chat", MODEL) as call:
        await _work(call)
        call.mark("last_token")
    choice = {"index": 0, "finish_reason": "stop", "message": _message("one two three")}
    return JSONResponse(_document(choices=[choice], usage=USAGE), headers=seen)


async def _work(call):
    call.mark("queued")
    await asyncio.sleep(QUEUE)
    call.mark("scheduled")
    await asyncio.sleep(PREFILL)
    call.mark("first_token")


async def _events(staged):
    async with llm_trace.engine_call("chat", MODEL) as call:
        await _work(call)
        for word in ("one", "two", "three"):
            yield _event(choices=[{"index": 0, "delta": _message(word), "finish_reason": None}])
            await asyncio.sleep(float(staged.get("pause", 0)))
    yield _event(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}])
    yield _event(choices=[], usage=USAGE)
    yield "data: [DONE]\n\n"


def _message(text):
    return {"role": "assistant", "content": text}


def _document(**more):
    return {"id": "c1", "created": 1, "model": MODEL, "object": "chat.completion", **more}


def _event(**more):
    return f"data: {json.dumps(_document(**more | {'object': 'chat.completion.chunk'}))}\n\n"
