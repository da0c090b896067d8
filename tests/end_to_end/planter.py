"""A middleware that plants a cause of slowness in requests that ask for it with a header."""

from __future__ import annotations

import asyncio
import time

from sabotage import Sabotage

import llm_trace

RETRIEVAL = {"x-test-plant": "retrieval"}
LOAD = {"x-test-plant": "load"}
BLOCK = {"x-test-plant": "block"}
LARGE = {"x-test-plant": "large"}
SLOW = 0.5
"""Seconds that a planted cause costs."""

PADDING = b": " + b"x" * 32_000 + b"\n\n"
"""A comment of an event stream: the kernel takes megabytes before it holds anybody up."""


class Planter(Sabotage):
    """Slow retrieval, a model to load, a handler that blocks everybody, or large chunks."""

    async def __call__(self, scope, receive, send):
        """Serve one scope."""
        headers = scope.get("headers", ())
        if (b"x-test-plant", b"retrieval") in headers:
            async with llm_trace.retrieval("a slow store"):
                await asyncio.sleep(SLOW)
        if (b"x-test-plant", b"load") in headers:
            async with llm_trace.phase("model_load"):
                await asyncio.sleep(SLOW)
        if (b"x-test-plant", b"block") in headers:
            time.sleep(SLOW)  # noqa: ASYNC251 - the fault that is planted
        if (b"x-test-plant", b"large") in headers:
            send = _padded(send)
        await super().__call__(scope, receive, send)


def _padded(send):
    async def padded(message):
        if message.get("body") and message.get("more_body"):
            message = {**message, "body": message["body"] + PADDING}
        await send(message)

    return padded
