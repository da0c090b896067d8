"""The flight recorder: the last and the slowest requests of this process, kept in memory.

For the moment when nothing was exported, or the trace was not sampled. It keeps records, which hold
no content, a bounded number of them; they become spans when somebody asks.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

from llm_trace.core.identity import TraceIdentity
from llm_trace.core.record import RequestRecord
from llm_trace.observers.otlp_json import document
from llm_trace.observers.sink import FinishedSpan
from llm_trace.observers.spans import SpanObserver


class FlightRecorder:
    """Keeps requests.

    Args:
        size: How many of the last, and how many of the slowest.
        spans: Makes the spans of one.
        service: Name of this process in what is shown.
    """

    def __init__(self, size: int, spans: SpanObserver, service: str) -> None:
        self._size = size
        self._spans = spans
        self._service = service
        self._last: deque[RequestRecord] = deque(maxlen=size)
        self._slowest: list[tuple[int, int, RequestRecord]] = []
        self._number = count()

    def observe(self, record: RequestRecord) -> None:
        """Keep `record`, if it is a generation."""
        if record.operation is None:
            return
        if record.content:  # which is for spans alone, and never for a page
            record = replace(record, content={})
        self._last.append(record)
        waited = record.duration if record.ttft is None else record.ttft
        entry = (waited, next(self._number), record)
        if len(self._slowest) < self._size:
            heapq.heappush(self._slowest, entry)
        else:
            heapq.heappushpop(self._slowest, entry)

    def show(self) -> dict[str, Any]:
        """What is kept, as OTLP JSON: what `llm-trace explain` reads."""
        kept = {id(record): record for record in self._records()}
        return document(self._made(list(kept.values())), self._service)

    def _records(self) -> Iterator[RequestRecord]:
        yield from tuple(self._last)
        for _, _, record in sorted(self._slowest, reverse=True):
            yield record

    def _made(self, records: list[RequestRecord]) -> Iterator[FinishedSpan]:
        for record in records:
            identity = record.identity or TraceIdentity(
                random.getrandbits(128) or 1, random.getrandbits(64) or 1
            )
            yield from self._spans.spans(replace(record, identity=identity), identity)
