"""The tracer provider that the app sets itself, now, later or never."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from llm_trace.observers.sink import SpanSink

MAX_WRAPPERS: Final = 4


@lru_cache(maxsize=1)
def _sink_of(provider: object) -> SpanSink | None:
    from llm_trace.observers.sdk.provider import sink_of  # noqa: PLC0415

    return sink_of(provider)


def sink() -> SpanSink | None:
    """The app's own provider as a sink, whenever it is set; None until then."""
    provider = current()
    return None if provider is None else _sink_of(provider)


def current() -> object | None:
    """What the app has set as its provider by now, a proxy included; None without any SDK."""
    if "opentelemetry.sdk.trace" not in sys.modules:
        return None
    from opentelemetry.trace import get_tracer_provider  # noqa: PLC0415

    return _unwrapped(get_tracer_provider())


def _unwrapped(provider: Any) -> object:
    """The SDK's provider inside another's, as Logfire has it: that one is set anew now and then."""
    for _ in range(MAX_WRAPPERS):
        if hasattr(provider, "sampler") or not hasattr(provider, "provider"):
            break
        provider = provider.provider
    return provider
