"""`instrument()`: a Starlette or FastAPI app, traced in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from llm_trace.errors import SettingsError
from llm_trace.settings import Settings
from llm_trace.setup.composition import compose
from llm_trace.setup.middleware import TraceMiddleware

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from llm_trace.asgi.types import ASGIApp

App = TypeVar("App", bound="Starlette")

_MARK: Final = "_llm_trace_instrumented"


def instrument(app: App, **settings: Any) -> App:
    """Trace `app`: the middleware outside all others, exporters from the environment, /metrics.

    Idempotent; with the setting `enabled` false the app is returned as it came.

    Args:
        app: A Starlette or FastAPI app.
        **settings: Any setting of `Settings`; they beat `LLM_TRACE_*`.

    Raises:
        SettingsError: An unknown setting, a value that cannot be used, or no Starlette app.
    """
    checked = Settings.from_env(**settings)
    if not (hasattr(app, "build_middleware_stack") and hasattr(app, "state")):
        raise SettingsError(
            f"instrument() needs a Starlette or FastAPI app, not {type(app).__name__}: wrap other "
            "ASGI apps by hand, app = llm_trace.TraceMiddleware(app)."
        )
    if not checked.enabled or getattr(app.state, _MARK, False):
        return app
    compose(checked)  # bad variables fail here, at start, before the app is touched
    setattr(app.state, _MARK, True)
    if checked.metrics_path:
        from llm_trace.observers.exposition import add_route  # noqa: PLC0415

        add_route(app, checked.metrics_path)
    _wrap(app, checked)
    return app


def _wrap(app: Starlette, settings: Settings) -> None:
    """Put the middleware around the whole stack, whenever it is or was built."""
    from llm_trace.asgi.stack import traced  # noqa: PLC0415 - Starlette, only where it is there

    def trace(inner: ASGIApp) -> ASGIApp:
        return TraceMiddleware(inner, settings)

    if app.middleware_stack is not None:
        app.middleware_stack = traced(app.middleware_stack, trace)
    build = app.build_middleware_stack
    app.build_middleware_stack = lambda: traced(build(), trace)  # type: ignore[method-assign]
