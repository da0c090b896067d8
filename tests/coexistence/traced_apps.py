"""One app under every arrangement of llm_trace and the instrumentation of others."""

from __future__ import annotations

from fastapi import FastAPI
from opentelemetry import trace
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware import opentelemetry as starlettes
from starlette.responses import StreamingResponse
from starlette.routing import Mount, Route

import llm_trace

CHAT = "/v1/chat/completions"


async def _tokens():
    with trace.get_tracer_provider().get_tracer("app").start_as_current_span("stream"):
        yield b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'
        yield b"data: [DONE]\n\n"


async def chat(_request=None):
    """Stream an answer, with a span of the app's own before it and one around it."""
    with trace.get_tracer_provider().get_tracer("app").start_as_current_span("work"):
        return StreamingResponse(_tokens(), media_type="text/event-stream")


def starlette(**more):
    """A Starlette app."""
    return Starlette(routes=[Route(CHAT, chat, methods=["POST"])], **more)


def fastapi(**more):
    """A FastAPI app; from 0.142 on it makes a server span by itself."""
    app = FastAPI(**more)
    app.add_api_route(CHAT, chat, methods=["POST"], response_model=None)
    return app


def quiet_fastapi():
    """A FastAPI app that makes no span of its own."""
    return fastapi(telemetry={"tracing": False})


def _instrumented_before():
    app = fastapi()
    FastAPIInstrumentor.instrument_app(app)
    return llm_trace.instrument(app)


def _instrumented_after():
    app = llm_trace.instrument(fastapi())
    FastAPIInstrumentor.instrument_app(app)
    return app


def _added(middleware, make=starlette):
    app = make()
    app.add_middleware(middleware)
    return app


def _added_under_instrumentation():
    app = _added(llm_trace.TraceMiddleware, fastapi)
    FastAPIInstrumentor.instrument_app(app)
    return app


class _Passing:
    """A layer that gives inner ones a scope of their own."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        """Pass everything on, the scope as a copy."""
        await self.app({**scope, "state": {}}, receive, send)


def _twice():
    app = _added(llm_trace.TraceMiddleware, quiet_fastapi)
    app.add_middleware(llm_trace.TraceMiddleware)
    return llm_trace.TraceMiddleware(llm_trace.instrument(app))


def _mounted(outer, inner):
    """An instrumented app in an instrumented app."""
    app = Mount("/", llm_trace.instrument(inner()))
    return llm_trace.instrument(outer(routes=[app]))


def _fastapi_in_fastapi():
    app = FastAPI()
    app.mount("/", llm_trace.instrument(fastapi()))
    return llm_trace.instrument(app)


ARRANGEMENTS = {
    "alone on Starlette": lambda: llm_trace.instrument(starlette()),
    "alone on FastAPI": lambda: llm_trace.instrument(quiet_fastapi()),
    "by hand": lambda: llm_trace.TraceMiddleware(starlette()),
    "in a list of middlewares": lambda: starlette(
        middleware=[Middleware(llm_trace.TraceMiddleware)]
    ),
    "FastAPI's own spans outside": lambda: llm_trace.instrument(fastapi()),
    "FastAPI's own spans inside": lambda: llm_trace.TraceMiddleware(fastapi()),
    "Starlette's own spans outside": lambda: starlettes.OpenTelemetryMiddleware(
        llm_trace.instrument(starlette())
    ),
    "Starlette's own spans inside": lambda: llm_trace.instrument(
        _added(starlettes.OpenTelemetryMiddleware)
    ),
    "instrumentation-fastapi before": _instrumented_before,
    "instrumentation-fastapi after": _instrumented_after,
    "instrumentation-asgi outside": lambda: OpenTelemetryMiddleware(
        llm_trace.instrument(starlette())
    ),
    "instrumentation-asgi inside": lambda: llm_trace.instrument(_added(OpenTelemetryMiddleware)),
    "instrumentation-asgi around the middleware": lambda: OpenTelemetryMiddleware(
        llm_trace.TraceMiddleware(starlette())
    ),
    "the middleware around instrumentation-asgi": lambda: llm_trace.TraceMiddleware(
        OpenTelemetryMiddleware(starlette())
    ),
    "among the middlewares of FastAPI": lambda: _added(llm_trace.TraceMiddleware, fastapi),
    "among the middlewares, under instrumentation-fastapi": _added_under_instrumentation,
    "under a layer that copies the scope": lambda: _Passing(llm_trace.instrument(fastapi())),
    "added twice and more": _twice,
    "sub-app of Starlette": lambda: _mounted(Starlette, starlette),
    "sub-app of FastAPI": _fastapi_in_fastapi,
}
"""What a team may have: each makes the app afresh, after the provider was set."""
