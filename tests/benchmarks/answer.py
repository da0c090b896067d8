"""The app under test: one chat endpoint that streams, once silent and once using the app's voice.

It is an ASGI app on a Starlette route and does nothing else, so that what a middleware adds is not
lost in the noise of what a framework does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from starlette.applications import Starlette
from starlette.routing import Route

import llm_trace
from llm_trace.asgi.types import ASGIApp, Receive, Scope, Send
from tests.benchmarks import stream

_HEADERS: Final = [(b"content-type", b"text/event-stream; charset=utf-8")]


class Silent:
    """Streams the chunks that the driver put into the request's state."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        await _read(receive)
        await _write(send, scope["state"]["chunks"])


class Voiced:
    """The same answer from an app that says all it can, of itself and of its engine."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        await _read(receive)
        llm_trace.admitted()
        with llm_trace.retrieval("handbook", top_k=4) as retrieval:
            retrieval.set(documents=4)
        chunks = scope["state"]["chunks"]
        with llm_trace.engine_call("chat", stream.MODEL) as call:
            call.mark("queued")
            call.mark("scheduled")
            call.mark("first_token")
            await _write(send, chunks)
            call.mark("last_token")
            call.usage(input_tokens=96, cached_tokens=64, output_tokens=len(chunks) - 4)


def serving(endpoint: ASGIApp) -> Starlette:
    """An app that serves `endpoint` at the chat route."""
    return Starlette(routes=[Route(stream.PATH, endpoint, methods=["POST"])])


async def _read(receive: Receive) -> None:
    while (await receive()).get("more_body", False):
        pass


async def _write(send: Send, chunks: Iterable[bytes]) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    for chunk in chunks:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
