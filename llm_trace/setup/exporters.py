"""Where spans and metrics of this process go: OTLP endpoints, or the app's own provider."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from llm_trace.core import faults
from llm_trace.setup import apps_provider

if TYPE_CHECKING:
    from llm_trace.observers.exports import Exports
    from llm_trace.settings import Settings

T = TypeVar("T")

_exported_to: set[tuple[int, str]] = set()
"""Processes, and where the metrics of each go: one set of numbers is sent to a place once."""


def exports_of(settings: Settings, families: Callable[[], Iterable[Any]]) -> Exports:
    """Where spans and metrics go; variables are checked now, exporters are made in each process."""
    from llm_trace.observers.endpoint import resolve  # noqa: PLC0415
    from llm_trace.observers.exports import Exports, Made  # noqa: PLC0415

    given = {"endpoint": settings.otlp_endpoint, "protocol": settings.otlp_protocol}
    apps_own = settings.otlp_endpoint is None and apps_provider.sink() is not None
    # Where the app has a provider of its own, spans belong there, whatever it exports to.
    traces = None if apps_own else resolve("traces", os.environ, **given)
    metrics = resolve("metrics", os.environ, **given)
    if traces is None and metrics is None:
        return Exports(lambda: Made(apps_provider.sink, _nothing))
    from llm_trace.observers.sdk.exporters import load  # noqa: PLC0415 - only where used
    from llm_trace.observers.sdk.pipeline import Pipeline  # noqa: PLC0415 - likewise

    for endpoint in filter(None, (traces, metrics)):
        load(endpoint)

    def make() -> Made:
        pipeline = Pipeline(settings.shutdown_timeout)
        # By the first app that serves: one that is only composed would send nothing.
        if metrics is not None and (here := (os.getpid(), metrics.url)) not in _exported_to:
            _exported_to.add(here)
            _contained(lambda: pipeline.add_metrics(metrics, families))
        if traces is None:
            return Made(apps_provider.sink, pipeline.flush)
        sink = _contained(lambda: pipeline.add_spans(traces))
        return Made(lambda: sink, pipeline.flush)

    return Exports(make)


def _contained(make: Callable[[], T]) -> T | None:
    """What `make` makes; where it cannot, as without a certificate, the other signal goes on."""
    try:
        return make()
    except Exception as error:  # noqa: BLE001 - rule 1: never hurt the host
        faults.contain("exporters", error)
        return None


def _nothing() -> None:
    """There is nothing to flush."""
