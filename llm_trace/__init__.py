"""llm_trace says which wait made an LLM's first token slow.

    from fastapi import FastAPI
    import llm_trace

    app = FastAPI()
    llm_trace.instrument(app)

Importing it is quick: the middleware and the exporters load when they are first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from llm_trace._version import __version__
from llm_trace.context import (
    admitted,
    annotate,
    bind,
    current,
    engine_call,
    headers,
    phase,
    retrieval,
    user,
)
from llm_trace.errors import LlmTraceError, MissingExtraError, SettingsError

if TYPE_CHECKING:
    from llm_trace.settings import Settings as Settings
    from llm_trace.setup import TraceMiddleware as TraceMiddleware
    from llm_trace.setup import instrument as instrument

__all__ = [
    "LlmTraceError",
    "MissingExtraError",
    "Settings",
    "SettingsError",
    "TraceMiddleware",
    "__version__",
    "admitted",
    "annotate",
    "bind",
    "current",
    "engine_call",
    "headers",
    "instrument",
    "phase",
    "retrieval",
    "user",
]

_LAZY = {
    "Settings": "llm_trace.settings",
    "TraceMiddleware": "llm_trace.setup",
    "instrument": "llm_trace.setup",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'llm_trace' has no attribute {name!r}")
    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value
