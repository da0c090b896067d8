"""The last spans of a server that stops: sent before it says that its shutdown is complete.

A server ended by a signal may never run `atexit`, so the app's own lifespan carries the flush. Its
messages are not touched: only what Starlette runs as the lifespan is extended.

And the first word of a server that must not start: an app's middlewares are built when its lifespan
begins, and what one raises there is taken for an app without a lifespan, which is then served.
"""

from __future__ import annotations

import asyncio
import sys
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
            await _in_a_thread(flush)

    setattr(lifespan, _MARK, True)
    router.lifespan_context = lifespan


async def _in_a_thread(flush: Callable[[], None]) -> None:
    """Run `flush` off the event loop, whichever library's it is."""
    if _on_asyncio():
        await asyncio.to_thread(flush)
    else:
        from anyio import to_thread  # noqa: PLC0415 - Starlette's own way; there with its app

        await to_thread.run_sync(flush)


def is_served() -> bool:
    """Whether a server runs already, on asyncio or on trio."""
    return _on_asyncio() or _on_trio()


def _on_asyncio() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _on_trio() -> bool:
    trio: Any = sys.modules.get("trio")
    try:
        return trio is not None and trio.lowlevel.current_task() is not None
    except RuntimeError:
        return False


def refusing(fault: str, app: ASGIApp) -> ASGIApp:
    """`app`, but for its start: the server that asks for it says `fault` and ends."""

    async def refused(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.failed", "message": fault})
        else:
            await app(scope, receive, send)

    return refused
