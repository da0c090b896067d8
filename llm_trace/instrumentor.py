"""`opentelemetry-instrument uvicorn app:app`: Starlette and FastAPI apps traced without a line.

Found by its entry point in the group `opentelemetry_instrumentor`; loads only where that command
is installed, so its base class is there.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Collection
from typing import Any, Final

from opentelemetry.instrumentation import instrumentor
from starlette.applications import Starlette

from llm_trace.asgi.types import Receive, Scope, Send
from llm_trace.core import faults
from llm_trace.errors import SettingsError
from llm_trace.settings import Settings
from llm_trace.setup import instrument

_CALL: Final = "__call__"
_OUTERMOST: Final = "llm_trace.app"
"""The scope key of the app that the server called: one that is mounted in it is not another."""


class LlmTraceInstrumentor(instrumentor.BaseInstrumentor):  # type: ignore[misc,name-defined]
    """Traces every app that a server calls, from its first scope on.

    That is the lifespan, so `/metrics` is there before any request. An app that is mounted in
    another, or that was instrumented in code, is left as it is.
    """

    _original: Callable[..., Any] | None = None

    def instrumentation_dependencies(self) -> Collection[str]:
        """What must be installed."""
        return ("starlette >= 0.37",)

    def _instrument(self, **settings: Any) -> None:
        """Trace apps from now on; with settings that cannot be used, say so and trace none.

        The command puts this into every Python process of its environment: a fault of ours must
        cost neither the process nor the instrumentation of others.
        """
        try:
            Settings.from_env(**settings)
        except SettingsError as fault:
            faults.log().error("llm_trace: %s Apps are not traced.", fault)
            return
        self._original = Starlette.__call__
        setattr(Starlette, _CALL, _tracing(Starlette.__call__, settings))

    def _uninstrument(self, **_: Any) -> None:
        """Leave apps that are called for the first time from now on as they are."""
        if self._original is not None:
            setattr(Starlette, _CALL, self._original)
            self._original = None


def _tracing(call: Callable[..., Any], settings: dict[str, Any]) -> Callable[..., Any]:
    """`call`, but an app that a server calls for the first time is instrumented before."""
    met: weakref.WeakSet[Starlette] = weakref.WeakSet()

    @functools.wraps(call)
    async def traced(app: Starlette, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.setdefault(_OUTERMOST, app) is app and app not in met:
            met.add(app)
            _try(app, settings)
        await call(app, scope, receive, send)

    return traced


def _try(app: Starlette, settings: dict[str, Any]) -> None:
    try:
        instrument(app, **settings)
    except SettingsError as fault:
        faults.log().error("llm_trace: %s The app is not traced.", fault)
    except Exception as error:  # noqa: BLE001 - rule 1: never hurt the host
        faults.contain("instrument", error)
