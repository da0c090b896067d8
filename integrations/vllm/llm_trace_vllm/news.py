"""What EngineCore's schedule says of requests that have no output yet, and how it gets here.

vLLM tells the API process of a request with its first output: one that is aborted before was queued
or computing, and nobody says which; and how its prompt was cut into chunks is never told. So the
scheduler of `scheduling` adds one output to those of a step, under a request id that no request
has: vLLM's output processor passes over outputs of requests that it does not know, as those that
were aborted, and the join reads this one. It needs no socket of its own, keeps the order of the
engine's messages, and goes to the very API server that owns the request.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

CARRIER: Final = "llm_trace:schedule"
"""The request id of the output that carries the news, and the key of its text."""


class Stamps(NamedTuple):
    """The engine's stamps of a request without output: monotonic seconds, 0 where there is none."""

    request_id: str
    queued: float
    scheduled: float


class Computed(NamedTuple):
    """A chunk of a prompt, computed: prompt tokens, and monotonic seconds of its step."""

    request_id: str
    tokens: int
    start: float
    """When the scheduler began the step."""
    end: float
    """When the step's outputs were there."""


class Transfer(NamedTuple):
    """The KV cache of a prompt on its way from elsewhere; monotonic seconds."""

    request_id: str
    start: float
    """When the scheduler had decided to wait for it."""
    end: float
    """When it was there; 0 while it is on its way."""


class News(NamedTuple):
    """What one API server is to hear."""

    stamps: list[Stamps]
    chunks: list[Computed]
    transfers: list[Transfer]


def write(news: News) -> dict[str, str]:
    """`news` as trace headers, the one field of an output that may hold any text."""
    return {CARRIER: json.dumps(news, separators=(",", ":"))}


def read(output: Any) -> News:
    """The news in `output`, a carrier."""
    stamps, chunks, transfers = json.loads(output.trace_headers[CARRIER])
    return News(_rows(Stamps, stamps), _rows(Computed, chunks), _rows(Transfer, transfers))


def _rows(kind: Any, rows: Iterable[Iterable[Any]]) -> list[Any]:
    return [kind(*row) for row in rows]
