"""A server without sockets: drives an app through requests, and says what CPU they took."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Final

from llm_trace.asgi.types import ASGIApp, Message, Scope
from tests.benchmarks import stream

_PARKED_AFTER: Final = 64


class Server:
    """Gives one body to each request and drops what the app sends."""

    def __init__(self, chunks: Sequence[bytes]) -> None:
        self._chunks = chunks
        self._inbound: Message = {"type": "http.request", "body": stream.BODY, "more_body": False}

    def scope(self) -> Scope:
        """A new request, whose state tells the app what to answer."""
        scope = stream.request()
        scope["state"]["chunks"] = self._chunks
        return scope

    async def receive(self) -> Message:
        """The whole body, at once."""
        return self._inbound

    async def send(self, message: Message) -> None:
        """Drop a message."""


class ParkingServer(Server):
    """Holds `requests` requests in the middle of their streams, until it is told to go on."""

    def __init__(self, chunks: Sequence[bytes], requests: int) -> None:
        super().__init__(chunks)
        self.go, self.full = asyncio.Event(), asyncio.Event()
        self._free = requests

    async def serve(self, app: ASGIApp) -> None:
        """Serve one request that is parked."""
        sent = 0

        async def send(_message: Message) -> None:
            nonlocal sent
            sent += 1
            if sent == _PARKED_AFTER:
                await self._park()

        await app(self.scope(), self.receive, send)

    async def _park(self) -> None:
        self._free -= 1
        if not self._free:
            self.full.set()
        await self.go.wait()


async def cpu_ns(
    app: ASGIApp, server: Server, requests: int, settle: Callable[[], object]
) -> float:
    """CPU time of one request of `app` in ns, over `requests` of them.

    All threads count, and so does `settle`, which hands to the exporter what is still queued: work
    moved to the background is work.
    """
    receive, send = server.receive, server.send
    scopes = [server.scope() for _ in range(requests)]
    start = time.process_time_ns()
    for scope in scopes:
        await app(scope, receive, send)
    settle()
    return (time.process_time_ns() - start) / requests


async def bytes_in_flight(app: ASGIApp, requests: int) -> float:
    """Memory of one request of `app` that is in the middle of its stream, in bytes.

    The server's own share is in it: subtract the bare app's.
    """
    chunks = stream.chunks(2 * _PARKED_AFTER)
    await cpu_ns(app, Server(chunks), 1, lambda: None)  # what is made once is no request's
    server = ParkingServer(chunks, requests)
    gc.collect()
    tracemalloc.start()
    tasks = [asyncio.create_task(server.serve(app)) for _ in range(requests)]
    await server.full.wait()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    server.go.set()
    await asyncio.gather(*tasks)
    return used / requests
