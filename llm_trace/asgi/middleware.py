"""The ASGI middleware: configuration only; every request gets an `Exchange` of its own."""

from __future__ import annotations

from llm_trace.asgi.exchange import MARK, Exchange, rewrite_headers
from llm_trace.asgi.lifespan import flush_at_shutdown
from llm_trace.asgi.routes import Routes
from llm_trace.asgi.ticker import lag_here
from llm_trace.asgi.types import ASGIApp, Receive, Scope, Send
from llm_trace.core import engines, faults
from llm_trace.core.clock import SYSTEM, Clock
from llm_trace.core.dispatch import Dispatch
from llm_trace.core.identity import TraceIdentity
from llm_trace.core.timeline import Timeline
from llm_trace.settings import Settings


class LedgerMiddleware:
    """Watches HTTP requests for a `Dispatch`; other scopes pass with the very same callables.

    Args:
        app: The ASGI app.
        settings: Checked settings.
        dispatch: Where records go.
        clock: Where time comes from.
    """

    def __init__(
        self, app: ASGIApp, *, settings: Settings, dispatch: Dispatch, clock: Clock = SYSTEM
    ) -> None:
        self.app = app
        self._settings = settings
        self._dispatch = dispatch
        self._clock = clock
        self._routes = Routes(settings.routes, tuple(settings.quiet_paths))
        self._enabled = settings.enabled
        self._met_engines = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one scope."""
        exchange = self._exchange(scope, receive, send) if self._enabled else None
        if exchange is not None:
            await exchange.run(self.app)
        elif scope["type"] == "lifespan" and self._enabled:
            await self.app(scope, receive, self._send_of_life(scope, send))
        else:
            await self.app(scope, receive, send)

    def _send_of_life(self, scope: Scope, send: Send) -> Send:
        """A server begins: exporters start, and at its end what is queued is sent."""
        try:
            self._dispatch.start()
            return flush_at_shutdown(scope, send, self._dispatch.flush)
        except Exception as error:  # noqa: BLE001 - rule 1: never hurt the host
            faults.contain("begin", error)
            return send

    def _exchange(self, scope: Scope, receive: Receive, send: Send) -> Exchange | None:
        """What watches this scope, if it is a request to be watched."""
        try:
            if scope["type"] != "http" or _is_watched(scope) or self._routes.is_quiet(scope):
                return None
            if not self._met_engines:
                self._met_engines = True
                self._dispatch.start()
                engines.meet(scope)
            return self._begin(scope, receive, send)
        except Exception as error:  # noqa: BLE001 - rule 1: never hurt the host
            faults.contain("begin", error)
            return None

    def _begin(self, scope: Scope, receive: Receive, send: Send) -> Exchange:
        timeline = Timeline(self._clock, scope["headers"], self._dispatch.tracer)
        timeline.state = scope.get("state") or {}
        timeline.settings = self._settings
        timeline.loop = lag_here(self._clock, self._dispatch.on_lag)
        timeline.identity = self._identity(scope)
        exchange = Exchange(
            scope,
            receive,
            send,
            settings=self._settings,
            routes=self._routes,
            dispatch=self._dispatch,
            timeline=timeline,
        )
        scope[MARK] = timeline
        if self._settings.rewrite_traceparent:
            rewrite_headers(scope, timeline)
        return exchange

    def _identity(self, scope: Scope) -> TraceIdentity | None:
        """The request's place in a trace; a tracer that fails costs it its spans, no metric."""
        try:
            name = f"{scope['method']} {scope['path']}"
            return self._dispatch.tracer.begin(scope["headers"], name)
        except Exception as error:  # noqa: BLE001 - rule 1: never hurt the host
            faults.contain("tracer", error)
            return None


def _is_watched(scope: Scope) -> bool:
    """Whether we are inside of another copy of us; one that is done stood before us instead."""
    timeline: Timeline | None = scope.get(MARK)
    return timeline is not None and not timeline.closed
