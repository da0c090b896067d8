"""The last spans of a server that stops: sent before it says that its shutdown is complete.

A server ended by a signal may never run `atexit`, so the app's own lifespan carries the flush. Its
messages are not touched: what Starlette runs as the lifespan is extended, and of any other app the
last message waits for the flush.

And the first word of a server that must not start: an app's middlewares are built when its lifespan
begins, and what one raises there is taken for an app without a lifespan, which is then served.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from llm_trace.asgi.types import ASGIApp, Message, Receive, Scope, Send

_MARK: Final = "_llm_trace_flushes"
_LAST: Final = frozenset({"lifespan.shutdown.complete", "lifespan.shutdown.failed"})


def flush_at_shutdown(scope: Scope, send: Send, flush: Callable[[], None]) -> Send:
    """Run `flush` in a thread after the app's shutdown; the `send` that its lifespan is to have.

    That is the server's own where the app in `scope` is one of Starlette's.
    """
    router: Any = getattr(scope.get("app"), "router", None)
    original = getattr(router, "lifespan_context", None)
    if original is None:
        return _flushing(send, flush)
    if not getattr(original, _MARK, False):
        _extend(router, original, flush)
    return send


def _flushing(send: Send, flush: Callable[[], None]) -> Send:
    async def after_flush(message: Message) -> None:
        if message["type"] in _LAST:
            await _in_a_thread(flush)
        await send(message)

    return after_flush


def _extend(router: Any, original: Any, flush: Callable[[], None]) -> None:

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
