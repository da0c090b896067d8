"""A traced middleware stack that others can still take apart."""

from __future__ import annotations

from collections.abc import Callable

from starlette.middleware.errors import ServerErrorMiddleware

from llm_trace.asgi.types import ASGIApp, Receive, Scope, Send


class TracedStack(ServerErrorMiddleware):
    """Starlette's outermost middleware, watched from outside.

    OpenTelemetry's FastAPI instrumentation, when it comes after us, asks for Starlette's own
    outermost middleware and builds its spans around what is inside: that is traced as well, so
    that the request is watched either way, and by one of the two only.

    Args:
        stack: The stack as Starlette built it.
        trace: Puts the middleware around an app.
    """

    def __init__(self, stack: ServerErrorMiddleware, trace: Callable[[ASGIApp], ASGIApp]) -> None:
        super().__init__(trace(stack.app), handler=stack.handler, debug=stack.debug)
        self._whole = trace(stack)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one scope."""
        await self._whole(scope, receive, send)


def traced(stack: ASGIApp, trace: Callable[[ASGIApp], ASGIApp]) -> ASGIApp:
    """`stack` with the middleware around it."""
    if isinstance(stack, ServerErrorMiddleware):
        return TracedStack(stack, trace)
    return trace(stack)
