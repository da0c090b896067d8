"""GET /metrics: the process's Prometheus metrics, in the format that the scraper asks for."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, exposition
from prometheus_client.registry import REGISTRY
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from llm_trace.core import faults
from llm_trace.errors import LlmTraceError
from llm_trace.observers import workers


class NoPageError(LlmTraceError):
    """The workers cannot share their numbers, so there is no page with all of them."""


def page(accept: str, registry: CollectorRegistry = REGISTRY) -> tuple[bytes, str]:
    """The metrics and their content type: OpenMetrics with exemplars, or the classic text.

    Args:
        accept: The `Accept` header.
        registry: What to show; in multiprocess mode the files of all workers are shown.

    Raises:
        NoPageError: They are to be shown and cannot be shared.
    """
    if (fault := workers.fault()) is not None:
        raise NoPageError(fault)
    encode, content_type = exposition.choose_encoder(accept)
    return encode(_all_workers() if workers.are_many() else registry), content_type


def _all_workers() -> CollectorRegistry:
    from prometheus_client.multiprocess import (  # noqa: PLC0415 - reads its directory at import
        MultiProcessCollector,
    )

    workers.write_all()
    workers.forget_dead(workers.directory() or "")
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return registry


def add_route(app: Starlette, path: str) -> None:
    """Serve the metrics at `path`, with and without a trailing slash, before any catch-all route.

    An app that already has a route there keeps it.
    """
    plain = path.rstrip("/") or "/"
    if any(getattr(route, "path", None) == plain for route in app.router.routes):
        faults.log().info("llm_trace: %s is the app's own route, left as it is.", plain)
        return

    async def metrics(request: Request) -> Response:
        try:
            body, content_type = page(request.headers.get("accept", ""))
        except NoPageError as fault:
            return PlainTextResponse(f"llm_trace: no metrics: {fault}\n", status_code=503)
        return Response(body, headers={"content-type": content_type})

    for at in dict.fromkeys((plain, f"{plain.rstrip('/')}/")):
        app.router.routes.insert(0, Route(at, metrics, include_in_schema=False))
