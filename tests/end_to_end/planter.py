"""A middleware that plants a cause of slowness in requests that ask for it with a header."""

from __future__ import annotations

import asyncio
import time

from sabotage import Sabotage

import llm_trace

RETRIEVAL = {"x-test-plant": "retrieval"}
BLOCK = {"x-test-plant": "block"}
SLOW = 0.3
"""Seconds that a planted cause costs."""


class Planter(Sabotage):
    """Slow retrieval before the app, or a handler that blocks the event loop of everybody."""

    async def __call__(self, scope, receive, send):
        """Serve one scope."""
        headers = scope.get("headers", ())
        if (b"x-test-plant", b"retrieval") in headers:
            async with llm_trace.retrieval("a slow store"):
                await asyncio.sleep(SLOW)
        if (b"x-test-plant", b"block") in headers:
            time.sleep(SLOW)  # noqa: ASYNC251 - the fault that is planted
        await super().__call__(scope, receive, send)
