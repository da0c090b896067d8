"""Frameworks that make the server's span of a request themselves, by what they leave in it."""

from __future__ import annotations

from typing import Final

from llm_trace.asgi.types import Scope

FASTAPIS: Final = "fastapi.telemetry"
STARLETTES: Final = "starlette.opentelemetry"


def around(scope: Scope) -> int:
    """How many such layers the request is inside of now; looked at thrice a request."""
    told = scope.get(FASTAPIS)
    makes_span = told is not None and getattr(told, "span", None) is not None
    return makes_span + bool(scope.get(STARLETTES))
