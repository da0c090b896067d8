"""A server with a prefix cache whose every number is known beforehand, for the run's logic.

A word is a token, the template is three more, and blocks of four are cached. What it does wrong is
told to it in `faults`: the name of a fault for each request in turn. `tokenizer` is how often it
counts tokens.
"""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

TEMPLATE = 3
BLOCK = 4
TOGETHER = 4
"""Requests in flight for which one with the fault `meets` waits."""


class Engine:
    """The app, and what it was asked."""

    def __init__(self, *, tokenizer=math.inf, details=True, metrics=True, usage=True, faults=()):
        self.tokenizer, self.details, self.metrics, self.usage = tokenizer, details, metrics, usage
        self.faults = list(faults)
        self.blocks = set()
        self.queries = self.hits = self.finished = 0
        self.bodies, self.headers, self.scraped_by = [], [], []
        self.in_flight = self.most = 0
        self.met = asyncio.Event()
        self.app = Starlette(
            routes=[
                Route("/v1/models", self.models),
                Route("/metrics", self.page),
                Route("/tokenize", self.tokenize, methods=["POST"]),
                Route("/v1/chat/completions", self.chat, methods=["POST"]),
            ]
        )

    async def models(self, _request):
        """One model, with room."""
        return JSONResponse({"data": [{"id": "m", "max_model_len": 10_000}]})

    async def page(self, request):
        """The counters of vLLM that the benchmark reads."""
        self.scraped_by.append(request.headers.get("authorization"))
        if self.metrics == "hang":
            await asyncio.Event().wait()
        if not self.metrics:
            return Response(status_code=404)
        counts = {
            "vllm:prefix_cache_queries_total": self.queries,
            "vllm:prefix_cache_hits_total": self.hits,
            "vllm:request_queue_time_seconds_count": self.finished,
            "vllm:request_queue_time_seconds_sum": 0.25 * self.finished,
            "vllm:request_prefill_time_seconds_sum": 0.5 * self.finished,
        }
        return PlainTextResponse("".join(f"{k} {v}\n" for k, v in counts.items()))

    async def tokenize(self, request):
        """Count the words and the template."""
        self.tokenizer -= 1
        if self.tokenizer < 0:
            return Response(status_code=404)
        body = await request.json()
        return JSONResponse({"count": len(_words(body)) + TEMPLATE})

    async def chat(self, request):
        """Answer with as many tokens as were asked for."""
        body = await request.json()
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "refused":
            return JSONResponse({"error": {"message": "too many"}}, status_code=429)
        if fault == "plain":
            return JSONResponse({"choices": []})
        return StreamingResponse(self._stream(body, fault), media_type="text/event-stream")

    async def _stream(self, body, fault):
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            if self.in_flight == TOGETHER:
                self.met.set()
            if fault == "meets":
                await self.met.wait()
            if fault == "hangs":
                await asyncio.Event().wait()
            if fault == "error":
                yield _event({"error": {"type": "overloaded", "code": 503}})
                return
            if fault != "empty":
                for _ in range(body["max_tokens"]):
                    await asyncio.sleep(0)  # others run: it is what concurrency is
                    yield _event({"choices": [{"index": 0, "delta": {"content": "a"}}]})
            yield _event({"choices": [], "usage": self._usage(body)})
            yield b"data: [DONE]\n\n"
        finally:
            self.in_flight -= 1
            self.finished += 1

    def _usage(self, body):
        words = _words(body)
        blocks = [tuple(words[: end + BLOCK]) for end in range(0, len(words) - BLOCK, BLOCK)]
        cached = BLOCK * sum(block in self.blocks for block in blocks)
        self.blocks.update(blocks)
        self.queries += len(words) + TEMPLATE
        self.hits += cached
        if not self.usage:
            return None
        usage = {"prompt_tokens": len(words) + TEMPLATE, "completion_tokens": body["max_tokens"]}
        details = {"prompt_tokens_details": {"cached_tokens": cached}} if self.details else {}
        return {**usage, **details}


def _words(body):
    return body["messages"][0]["content"].split()


def _event(payload):
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


@contextmanager
def serving(engine):
    """Serve it in a thread of its own; its URL."""
    server = uvicorn.Server(uvicorn.Config(engine.app, port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = server.force_exit = True
        thread.join()
