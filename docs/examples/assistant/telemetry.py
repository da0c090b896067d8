"""OpenTelemetry as the team had it before: a provider that exports where the environment says."""

from __future__ import annotations

import os

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: TID251 - an app's own
    OTLPSpanExporter,
)
from opentelemetry.sdk.trace import TracerProvider  # noqa: TID251 - likewise
from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: TID251 - likewise


def set_up() -> None:
    """Export spans over OTLP, where `OTEL_EXPORTER_OTLP_ENDPOINT` is set."""
    if not os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        return
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
