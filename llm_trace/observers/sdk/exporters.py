"""The OTLP exporters: imported, made, and kept from filling the log."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Any, Final

from opentelemetry.sdk.metrics.export import MetricExporter
from opentelemetry.sdk.trace import SpanLimits
from opentelemetry.sdk.trace.export import SpanExporter

from llm_trace.core.clock import SYSTEM
from llm_trace.observers import rejected
from llm_trace.observers.endpoint import Endpoint

_QUIET_SECONDS: Final = 60
_GRPC_LOGGER: Final = "opentelemetry.exporter.otlp.proto.grpc.exporter"
"""Where both gRPC exporters log."""


def load(endpoint: Endpoint) -> None:
    """Import what exports to `endpoint`, which takes long; nothing is opened.

    Raises:
        ValueError: A variable of the SDK has a limit of spans that is none.
    """
    for signal in ("trace", "metric"):
        _exporter_module(endpoint, signal)
    SpanLimits()


def _exporter_module(endpoint: Endpoint, signal: str) -> Any:
    kind = "grpc" if endpoint.protocol == "grpc" else "http"
    module = import_module(f"opentelemetry.exporter.otlp.proto.{kind}.{signal}_exporter")
    _quieten(_GRPC_LOGGER if kind == "grpc" else module.__name__)
    return module


def span_exporter(endpoint: Endpoint) -> SpanExporter:
    """What sends spans to `endpoint`."""
    module, given = _exporter_module(endpoint, "trace"), _given(endpoint)
    if endpoint.protocol == "grpc":
        exporter: SpanExporter = module.OTLPSpanExporter(**given)
        rejected.listen(exporter)
    else:
        exporter = module.OTLPSpanExporter(**given, session=rejected.listening_session())
    return exporter


def metric_exporter(endpoint: Endpoint) -> MetricExporter:
    """What sends metrics to `endpoint`."""
    module = _exporter_module(endpoint, "metric")
    given = _given(endpoint)
    if endpoint.protocol != "grpc":
        given["session"] = rejected.strict_session("METRICS")
    exporter: MetricExporter = module.OTLPMetricExporter(**given)
    return exporter


def _given(endpoint: Endpoint) -> dict[str, Any]:
    """What both exporters are told.

    Those of gRPC would let a variable beat the scheme, and refuse `none` as a compression.
    """
    given: dict[str, Any] = {"endpoint": endpoint.url, "headers": dict(endpoint.headers)}
    if endpoint.protocol == "grpc":
        kinds = import_module("grpc").Compression
        given["insecure"] = endpoint.is_plain
        given["compression"] = kinds.Gzip if endpoint.compression else kinds.NoCompression
    return given


class _Seldom(logging.Filter):
    """Lets one record a minute through: a collector that is down is said, not repeated."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 0

    def filter(self, record: logging.LogRecord) -> bool:  # noqa: ARG002
        now = SYSTEM.monotonic_ns()
        if now < self._next:
            return False
        self._next = now + _QUIET_SECONDS * 10**9
        return True


def _quieten(logger_name: str) -> None:
    logger = logging.getLogger(logger_name)
    if not any(isinstance(f, _Seldom) for f in logger.filters):
        logger.addFilter(_Seldom())
