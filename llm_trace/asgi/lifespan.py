"""The last spans of a server that stops: sent before it says that its shutdown is complete.

A server ended by a signal may never run `atexit`, so the app's own lifespan carries the flush. Its
messages are not touched: only what Starlette runs as the lifespan is extended.

And the first word of a server that must not start: an app's middlewares are built when its lifespan
begins, and what one raises there is taken for an app without a lifespan, which is then served.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from llm_trace.asgi.types import ASGIApp, Receive, Scope, Send

_MARK: Final = "_llm_trace_flushes"


def flush_at_shutdown(scope: Scope, flush: Callable[[], None]) -> None:
    """Run `flush` in a thread after the shutdown of the Starlette app in `scope`, if it is one."""
    router: Any = getattr(scope.get("app"), "router", None)
    original = getattr(router, "lifespan_context", None)
    if original is None or getattr(original, _MARK, False):
        return

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[Any]:
        try:
            async with original(app) as state:
                yield state
        finally:
            await asyncio.to_thread(flush)

    setattr(lifespan, _MARK, True)
    router.lifespan_context = lifespan


def refusing(fault: str, app: ASGIApp) -> ASGIApp:
    """`app`, but for its start: the server that asks for it says `fault` and ends."""

    async def refused(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.failed", "message": fault})
        else:
            await app(scope, receive, send)

    return refused
