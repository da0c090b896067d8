"""The composition root: settings, tracer, metrics and middleware become one.

The only package that knows all parts; every part can be used and tested without it. `starlette_app`
traces an app in one line, `middleware` stands around any ASGI app, and `composition` makes what it
tells of requests, with `exporters`, `tail` sampling and `listening` for retrievals. These three ask
`apps_provider` for the tracer provider that the app may set itself.
"""

from __future__ import annotations

from llm_trace.setup.composition import compose
from llm_trace.setup.middleware import TraceMiddleware
from llm_trace.setup.starlette_app import instrument

__all__ = ["TraceMiddleware", "compose", "instrument"]
