"""From a conversation to an answer: find what is asked for, look it up, ask the engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx

from assistant.engine import Engine, Message, text_of
from assistant.shelf import Passage, Shelf

_TOP_K = 3
_BROKEN = b'data: {"error": {"type": "engine_error", "message": "the engine went away"}}\n\n'
_REWRITE = "Say the last question again so that it can be understood by itself. Say nothing else."
_ANSWER = "Answer from these passages of the handbook, and name their titles.\n\n"


class Answers:
    """What the assistant does with a conversation."""

    def __init__(self, engine: Engine, shelf: Shelf) -> None:
        self._engine = engine
        self._shelf = shelf

    async def prepare(self, messages: list[Message]) -> list[Message]:
        """The messages for the engine: the passages, then the conversation."""
        question = str(messages[-1]["content"])
        if len(messages) > 1:  # a question that leans on what was said before
            rewritten = [{"role": "system", "content": _REWRITE}, *messages]
            question = await self._engine.complete(rewritten, max_tokens=24) or question
        found = await asyncio.to_thread(self._shelf.search, question, _TOP_K)
        return [{"role": "system", "content": _ANSWER + _shown(found)}, *messages]

    async def stream(
        self, prepared: list[Message], max_tokens: int, said: list[str]
    ) -> AsyncIterator[bytes]:
        """The events of the answer; its text is added to `said`."""
        try:
            async for event in self._engine.stream(prepared, max_tokens):
                said.append(text_of(event))
                yield event
        except httpx.HTTPError:
            if not said:
                raise
            yield _BROKEN  # the answer has begun: all that is left is to say so


def _shown(found: list[Passage]) -> str:
    return "\n\n".join(f"[{passage.title}]\n{passage.text}" for passage in found)
