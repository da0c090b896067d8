"""A SIMULATED engine for machines without vLLM: OpenAI's wire format over the batcher.

It reports its moments through `llm_trace.engine_call`, as any engine that is not vLLM would.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

import llm_trace
from llm_trace.demo.batcher import Batcher, Pace, Work

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

MODEL: Final = "simulated"
_TOKEN: Final = re.compile(r"\w{1,4}|[^\w\s]")
_WORDS: Final = ("these", "words", "come", "from", "a", "simulated", "engine")
_MAX_TOKENS: Final = 512


def create() -> Starlette:
    """Build the server from the environment, for uvicorn."""
    slots = int(os.environ.get("DEMO_ENGINE_SLOTS", "4"))
    return build(Batcher(slots=slots, pace=Pace()))


def build(batcher: Batcher) -> Starlette:
    """Build the server around a batcher."""
    routes = [
        Route("/v1/chat/completions", _chat, methods=["POST"]),
        Route("/health", _health),
    ]
    app = Starlette(routes=routes)
    app.state.batcher = batcher
    llm_trace.instrument(app, provider=MODEL)
    return app


async def _health(_request: Request) -> Response:
    return PlainTextResponse("ok")


async def _chat(request: Request) -> Response:
    try:
        body = await request.json()
        text = "\n".join(f"{one['role']}: {one['content']}" for one in body["messages"])
        max_tokens = min(int(body.get("max_tokens", 16)), _MAX_TOKENS)
    except (ValueError, KeyError, TypeError) as fault:
        return JSONResponse({"error": {"message": f"bad request: {fault!r}"}}, status_code=400)
    prompt = [hash(piece) for piece in _TOKEN.findall(text)]
    events = _stream(request.app.state.batcher, Work(prompt, max_tokens))
    return StreamingResponse(events, media_type="text/event-stream")


async def _stream(batcher: Batcher, work: Work) -> AsyncIterator[bytes]:
    """Run the work inside an engine call, marking its moments as they happen."""
    with llm_trace.engine_call("chat", MODEL) as call:
        call.mark("queued")
        made = 0
        async with aclosing(batcher.run(work)) as events:
            async for event in events:
                if event == "scheduled":
                    call.mark("scheduled")
                    continue
                if not made:
                    call.mark("first_token")
                yield _delta(made)
                made += 1
        call.mark("last_token")
        call.usage(
            input_tokens=len(work.prompt), cached_tokens=work.cached_tokens, output_tokens=made
        )
    yield _finish(work, made)


def _delta(made: int) -> bytes:
    role = {} if made else {"role": "assistant"}
    delta = {**role, "content": _WORDS[made % len(_WORDS)] + " "}
    return _event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})


def _finish(work: Work, made: int) -> bytes:
    usage = {
        "prompt_tokens": len(work.prompt),
        "completion_tokens": made,
        "total_tokens": len(work.prompt) + made,
        "prompt_tokens_details": {"cached_tokens": work.cached_tokens},
    }
    end = _event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
    return end + _event({"choices": [], "usage": usage}) + b"data: [DONE]\n\n"


def _event(payload: dict[str, Any]) -> bytes:
    whole = {"object": "chat.completion.chunk", "model": MODEL, **payload}
    return b"data: " + json.dumps(whole).encode() + b"\n\n"
