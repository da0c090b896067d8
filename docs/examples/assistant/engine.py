"""The engine behind HTTP: any server that speaks OpenAI's chat."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import httpx

Message = dict[str, Any]


class Engine:
    """A client of the engine.

    Args:
        client: An httpx client whose base URL is the engine's.
        model: The model to ask for.
    """

    def __init__(self, client: httpx.AsyncClient, model: str) -> None:
        self._client = client
        self._model = model

    async def stream(self, messages: list[Message], max_tokens: int) -> AsyncGenerator[bytes, None]:
        """The engine's own events, as they come."""
        body = {
            "model": self._model,
            "messages": messages,
            "max_tokens": max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        async with self._client.stream("POST", "/v1/chat/completions", json=body) as response:
            response.raise_for_status()
            async for line in response.aiter_lines():
                if line.startswith("data:"):
                    yield f"{line}\n\n".encode()

    async def complete(self, messages: list[Message], max_tokens: int) -> str:
        """The whole text of an answer."""
        async with aclosing(self.stream(messages, max_tokens)) as events:
            return "".join([text_of(event) async for event in events])


def text_of(event: bytes) -> str:
    """The text in one event; none in those that carry none."""
    data = event.removeprefix(b"data:").strip()
    if data == b"[DONE]":
        return ""
    choices = json.loads(data).get("choices") or [{}]
    return str((choices[0].get("delta") or {}).get("content") or "")
