"""Can the exporters be made? They read variables of their own, and the server is quiet about it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from llm_trace.doctor.finding import Finding
from llm_trace.observers.endpoint import Endpoint
from llm_trace.observers.variables import Signal

_LOGGER: Final = "opentelemetry"
_SAMPLING: Final = "opentelemetry.sdk.trace.sampling"
"""Whose warnings are told by the check of that name."""


def rehearsal(check: str, signal: Signal, endpoint: Endpoint) -> Iterator[Finding]:
    """Make what would export `signal`, as the server does, and repeat what is said meanwhile."""
    with _hearing() as heard:
        fault = _fault(check, signal, endpoint)
    for said in heard:
        yield Finding(check, "warning", f"OpenTelemetry says: {said}", "Correct that variable.")
    if fault is not None:
        yield fault


def _fault(check: str, signal: Signal, endpoint: Endpoint) -> Finding | None:
    try:
        from llm_trace.observers.sdk.pipeline import rehearse  # noqa: PLC0415 - may not be installed

        rehearse(signal, endpoint)
    except ImportError as fault:
        said = f"the exporter is not installed, and the server cannot start: {fault}"
        fix = "pip install opentelemetry-sdk opentelemetry-exporter-otlp"
        return Finding(check, "fault", said, fix)
    except Exception as fault:  # noqa: BLE001 - whatever OpenTelemetry raises is the finding
        said = f"the exporter cannot be made: {str(fault)[:200] or type(fault).__name__}"
        fix = "Correct that variable of OpenTelemetry: until then the server serves without it."
        return Finding(check, "fault", said, fix)
    return None


@contextmanager
def _hearing() -> Iterator[list[str]]:
    """Collect what OpenTelemetry logs, in place of showing it."""
    heard: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.name != _SAMPLING:
                heard.append(record.getMessage()[:200])

    logger, handler = logging.getLogger(_LOGGER), Handler(logging.WARNING)
    propagates, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield heard
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates
