"""An app that answers in every way with the song that it was asked for."""

from __future__ import annotations

import json

from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route

import llm_trace


def _event(document):
    return f"data: {json.dumps(document)}\n\n"


async def _stream(song, *, breaks=False):
    yield _event({"id": "x", "choices": [{"delta": {"role": "assistant", "content": song}}]})
    yield f": {song}\n\n"
    yield f"event: {song}\ndata: {song}\n\n"
    if breaks:
        raise LookupError(song)
    yield _event({"choices": [{"delta": {"reasoning": song, "tool_calls": [{"id": song}]}}]})
    yield _event({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    yield "data: [DONE]\n\n"


async def _failing(song):
    yield _event({"error": {"type": "overloaded", "message": song, "param": song}})


def _plain(song):
    return {
        "id": "x",
        "choices": [{"message": {"content": song}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, song: song},
    }


async def _answer(request):
    """Whatever was asked for."""
    body = await request.json()
    song, how = body["song"], body["how"]
    with llm_trace.retrieval(data_source="shelf"):
        pass
    if how == "crash":
        raise LookupError(song)
    if how == "plain":
        return JSONResponse(_plain(song), headers={"set-cookie": song, "x-song": song})
    if how == "text":
        return PlainTextResponse(song)
    if how == "garbage":
        return JSONResponse({"error": {"message": song, "code": 4}}, 422)
    made = _failing(song) if how == "error" else _stream(song, breaks=how == "breaks")
    return StreamingResponse(made, media_type="text/event-stream", headers={"x-song": song})


def create():
    """The app, traced."""
    paths = ("/v1/chat/completions", "/v1/embeddings", "/other")
    return llm_trace.instrument(
        Starlette(routes=[Route(path, _answer, methods=["POST"]) for path in paths])
    )
