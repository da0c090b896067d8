"""The app's HTTP: OpenAI's chat route in front of the assistant, the shelf, and who used what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, BackgroundTasks, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, Field
from starlette.background import BackgroundTask

from assistant.keys import Editor, Owner
from assistant.limits import Admitted

chats, shelves = APIRouter(), APIRouter()


class Said(BaseModel):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: Annotated[str, Field(min_length=1, max_length=20_000)]


class Conversation(BaseModel):
    """What a client asks; other fields of OpenAI's are let pass and ignored."""

    messages: Annotated[list[Said], Field(min_length=1, max_length=50)]
    max_tokens: Annotated[int, Field(ge=1, le=512)] = 64
    stream: bool = False


class Document(BaseModel):
    """What an editor puts on the shelf."""

    title: Annotated[str, Field(min_length=1, max_length=200)]
    text: Annotated[str, Field(min_length=1, max_length=1_000_000)]


@chats.post("/chat/completions")
async def chat(request: Request, asked: Conversation, owner: Admitted) -> Response:
    """Answer from the handbook, in one piece or as it is made; noted when it has been given."""
    answers, shelf = request.app.state.answers, request.app.state.shelf
    messages = [one.model_dump() for one in asked.messages]
    prepared = await answers.prepare(messages)
    said: list[str] = []
    events = await begun(answers.stream(prepared, asked.max_tokens, said))

    async def note() -> None:
        size = sum(len(one["content"]) for one in messages)
        await asyncio.to_thread(shelf.note, owner, size, len("".join(said)))

    task = BackgroundTask(note)
    if asked.stream:
        return StreamingResponse(events, media_type="text/event-stream", background=task)
    async for _ in events:
        pass
    return JSONResponse(_whole("".join(said)), background=task)


async def begun(events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """`events`, once there is a first one: until then a failure can still be a status."""
    first = await anext(events, b"")

    async def all_of_them() -> AsyncIterator[bytes]:
        yield first
        async for event in events:
            yield event

    return all_of_them()


def _whole(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"object": "chat.completion", "choices": [choice]}


@shelves.post("/documents", status_code=202)
async def put(request: Request, given: Document, _: Editor, later: BackgroundTasks) -> None:
    """Take a document; it is indexed after the answer."""
    later.add_task(request.app.state.shelf.add, given.title, given.text)


@shelves.get("/usage")
async def usage(request: Request, owner: Owner) -> dict[str, int]:
    """What the owner of the key has used."""
    used: dict[str, int] = await asyncio.to_thread(request.app.state.shelf.usage, owner)
    return used
