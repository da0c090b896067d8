"""The ASGI middleware with everything behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llm_trace.asgi.lifespan import is_served, refusing
from llm_trace.asgi.middleware import LedgerMiddleware
from llm_trace.core.dispatch import Dispatch
from llm_trace.errors import SettingsError
from llm_trace.settings import Settings
from llm_trace.setup.composition import compose

if TYPE_CHECKING:
    from llm_trace.asgi.types import ASGIApp


class TraceMiddleware(LedgerMiddleware):
    """The ASGI middleware with everything set up from the environment.

    For `app.add_middleware(TraceMiddleware)`, for wrapping an app by hand, and for
    `vllm serve MODEL --middleware llm_trace.TraceMiddleware`.

    Args:
        app: The ASGI app.
        settings: Checked settings; None reads `LLM_TRACE_*`.

    Raises:
        SettingsError: A setting or an `OTEL_*` variable cannot be used. Where a server builds its
            middlewares while it starts, it is told to fail instead.
    """

    def __init__(self, app: ASGIApp, settings: Settings | None = None) -> None:
        try:
            settings = Settings.from_env() if settings is None else settings
            dispatch = compose(settings) if settings.enabled else Dispatch()
        except SettingsError as fault:
            if not is_served():
                raise
            app = refusing(f"llm_trace: {fault}", app)
            settings, dispatch = Settings(enabled=False), Dispatch()
        super().__init__(
            _with_flights(app, settings, dispatch), settings=settings, dispatch=dispatch
        )


def _with_flights(app: ASGIApp, settings: Settings, dispatch: Dispatch) -> ASGIApp:
    """`app`, and the page of the flight recorder where there is one."""
    if not settings.flight_recorder:
        return app
    from llm_trace.asgi.page import with_page  # noqa: PLC0415 - rarely on
    from llm_trace.observers.flight import FlightRecorder  # noqa: PLC0415

    for observer in dispatch.observers:
        if isinstance(observer, FlightRecorder):
            return with_page(app, settings.flight_recorder_path, observer.show)
    return app
