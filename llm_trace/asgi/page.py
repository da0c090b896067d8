"""One page of our own before the app, for this machine only."""

from __future__ import annotations

import json
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

from llm_trace.asgi.types import ASGIApp, Receive, Scope, Send


def with_page(app: ASGIApp, path: str, show: Callable[[], Any]) -> ASGIApp:
    """`app`, and at `path` what `show` gives, as JSON.

    Only callers on this machine see it, as through `kubectl port-forward`: for anybody else there
    is no such page, whatever the app has there.
    """

    async def paged(scope: Scope, receive: Receive, send: Send) -> None:
        asked = scope["type"] == "http" and scope["path"] == path and scope["method"] == "GET"
        if not asked or not _is_local(scope):
            await app(scope, receive, send)
            return
        body = json.dumps(show()).encode()
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return paged


def _is_local(scope: Scope) -> bool:
    client = scope.get("client")
    try:
        return client is not None and ip_address(client[0]).is_loopback
    except ValueError:
        return False
