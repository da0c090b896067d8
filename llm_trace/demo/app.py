"""The RAG service of the demo: what llm_trace looks like inside an app of a few dozen lines."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import httpx
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, Field

import llm_trace
from llm_trace.demo.index import DATA_SOURCE, Index, Passage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

SYSTEM: Final = "Answer from these passages of the Python reference."

router = APIRouter()


class Message(BaseModel):
    """One turn of a chat."""

    role: Literal["user", "assistant"]
    content: str = Field(max_length=2000)


class Chat(BaseModel):
    """The part of OpenAI's request that this service takes, and how many passages to read."""

    messages: list[Message] = Field(min_length=1, max_length=20)
    stream: Literal[True]
    max_tokens: int = Field(default=64, ge=1, le=512)
    documents: int = Field(default=6, ge=0, le=8)


def create() -> FastAPI:
    """Build the service from the environment, for uvicorn."""
    engine = httpx.AsyncClient(base_url=os.environ["DEMO_ENGINE_URL"], trust_env=False, timeout=60)
    return build(engine, os.environ["DEMO_MODEL"], os.environ["DEMO_API_KEY"])


def build(engine: httpx.AsyncClient, model: str, api_key: str) -> FastAPI:
    """Build the service around an engine's client, which it closes in the end."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.index = await asyncio.to_thread(Index)
        async with engine:
            yield
        app.state.index.close()

    app = FastAPI(title="llm_trace demo", lifespan=lifespan)
    app.state.engine, app.state.model, app.state.api_key = engine, model, api_key
    app.include_router(router)
    app.add_exception_handler(httpx.HTTPError, _engine_failed)
    llm_trace.instrument(app)
    return app


Bearer = Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())]


@router.get("/health")
async def health() -> PlainTextResponse:
    """Say that the service is up."""
    return PlainTextResponse("ok")


@router.post("/v1/chat/completions")
async def chat(chat: Chat, request: Request, bearer: Bearer) -> StreamingResponse:
    """Retrieve, build the prompt, and pass the engine's stream on, byte for byte."""
    state = request.app.state
    if not secrets.compare_digest(bearer.credentials, state.api_key):
        raise HTTPException(401, "Unknown API key.")
    llm_trace.admitted()
    passages = await _retrieve(state.index, chat) if chat.documents else []
    prompt = {"model": state.model, "messages": _messages(passages, chat), **_wishes(chat)}
    answer = _relay(state.engine, state.model, prompt)
    first = await anext(answer, b"")  # an engine that fails before its first byte is a plain 502
    return StreamingResponse(_chain(first, answer), media_type="text/event-stream")


async def _retrieve(index: Index, chat: Chat) -> list[Passage]:
    """Search for the chat's first question: the later ones go on about the same passages."""
    async with llm_trace.retrieval(data_source=DATA_SOURCE, top_k=chat.documents) as span:
        found = await asyncio.to_thread(index.search, chat.messages[0].content, chat.documents)
        span.set(documents=len(found))
    return found


def _messages(passages: list[Passage], chat: Chat) -> list[dict[str, str]]:
    read = "\n\n".join(f"[{passage.topic}] {passage.text}" for passage in passages)
    system = {"role": "system", "content": f"{SYSTEM}\n\n{read}"}
    return [system, *(message.model_dump() for message in chat.messages)]


def _wishes(chat: Chat) -> dict[str, Any]:
    usage = {"include_usage": True}
    return {"stream": True, "stream_options": usage, "max_tokens": chat.max_tokens}


async def _relay(
    engine: httpx.AsyncClient, model: str, prompt: dict[str, Any]
) -> AsyncGenerator[bytes, None]:
    """Call the engine: what it traces becomes a child of this call."""
    with llm_trace.engine_call("chat", model) as call:
        path, headers = "/v1/chat/completions", call.headers()
        async with engine.stream("POST", path, json=prompt, headers=headers) as response:
            response.raise_for_status()
            async for chunk in response.aiter_bytes():
                yield chunk


async def _chain(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    """Stream on; the status is sent by now, so a failure becomes an event of the stream."""
    yield first
    try:
        async with aclosing(rest):
            async for chunk in rest:
                yield chunk
    except httpx.HTTPError as fault:
        yield b"data: " + json.dumps(_error(fault)).encode() + b"\n\n"


async def _engine_failed(_request: Request, fault: Exception) -> JSONResponse:
    return JSONResponse(_error(fault), status_code=502)


def _error(fault: Exception) -> dict[str, Any]:
    said = type(fault).__name__
    if isinstance(fault, httpx.HTTPStatusError):
        said = f"status {fault.response.status_code}"
    return {"error": {"message": f"The engine could not answer ({said}).", "code": 502}}
