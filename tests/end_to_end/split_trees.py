"""Traces that go through an app and the engines that it calls."""

from __future__ import annotations

import asyncio

from stamped_client import Connection

from llm_trace import semconv as s

CLIENT = 3


def asked(port, *requests, headers=()):
    """The answers to requests that are all made at once."""

    async def one(path, body):
        async with Connection(port) as connection:
            return await connection.ask(path, body, headers=headers)

    async def every():
        return await asyncio.gather(*(one(*request) for request in requests))

    return asyncio.run(every())


def trees(tap, answers, roots=2):
    """Of each answer: the app's root, the engine's roots, and the calls between them."""
    for answer in answers:
        assert answer.status == 200
        spans = tap.trace_with(answer.trace_id, roots)
        found = [span for span in spans if span.is_root]
        calls = [span for span in spans if span.kind == CLIENT]
        (app,) = [span for span in found if span.parent_id not in {call.span_id for call in calls}]
        engine = [span for span in found if span is not app]
        yield app, sorted(engine, key=lambda x: x.start), sorted(calls, key=lambda x: x.start)


def ttft_phases(root):
    """Seconds by phase of the time to first token."""
    prefix = s.TTFT_PHASE_PREFIX
    return {k.removeprefix(prefix): v for k, v in root.attributes.items() if k.startswith(prefix)}
