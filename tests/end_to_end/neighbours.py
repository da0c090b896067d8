"""Apps that have more than llm_trace: factories for real uvicorn processes."""

from __future__ import annotations

import os

import apps
import logfire
import sentry_sdk
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

import llm_trace


def _provider():
    """The app's own provider, which exports where the environment says."""
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


def sentry():
    """Sentry, whose SDK wraps every Starlette app by itself."""
    sentry_sdk.init(os.environ["TEST_SENTRY_DSN"], traces_sample_rate=1.0)
    return apps.create()


def _logfire():
    """Logfire, which exports over OTLP where the environment says."""
    logfire.configure(send_to_logfire=False, console=False, distributed_tracing=True)


def logfire_before():
    """Logfire with its own instrumentation of FastAPI, then llm_trace."""
    _logfire()
    app = apps.bare()
    logfire.instrument_fastapi(app)
    return llm_trace.instrument(app)


def logfire_after():
    """The same the other way round."""
    _logfire()
    app = llm_trace.instrument(apps.bare())
    logfire.instrument_fastapi(app)
    return app


def asgi_outside():
    """OpenTelemetry's ASGI middleware around everything."""
    _provider()
    return OpenTelemetryMiddleware(apps.create())


def asgi_inside():
    """The same between us and the app."""
    _provider()
    app = apps.bare()
    app.add_middleware(OpenTelemetryMiddleware)
    return llm_trace.instrument(app)


def own_provider():
    """A provider of the app's own, for which FastAPI makes spans by itself."""
    _provider()
    return apps.create()
