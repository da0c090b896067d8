"""Retrievals that other instrumentations see: their spans' time goes to the ledger of the request.

Told of every span of the app's provider that starts and ends. Whose request a span belongs to is
found at its start: its parent's request, or the one whose code runs, or the one whose root or phase
is its parent. What it is, it says by its end. The span stays theirs: the ledger takes its time, and
no second span is made of it.
"""

from __future__ import annotations

from typing import Any, Final

from llm_trace import context
from llm_trace import semconv as s
from llm_trace.core import engines, faults
from llm_trace.core.interval import Interval
from llm_trace.core.timeline import Timeline
from llm_trace.observers.retrieval_spans import documents_of, is_retrieval

MAX_OPEN: Final = 4096
"""Spans watched at once; what starts above it in requests that still run is not looked at."""

DOCUMENTS: Final = "documents"


class _Open:
    """A span that runs inside a request, and the retrievals that ended inside of it."""

    __slots__ = ("above", "below", "parent_span_id", "timeline")

    def __init__(self, timeline: Timeline, above: _Open | None, parent_span_id: int) -> None:
        self.timeline = timeline
        self.above = above
        self.parent_span_id = parent_span_id
        self.below: list[Interval] = []

    @property
    def phase_span_id(self) -> int:
        """The span of ours that it runs in: the root's, or a phase's."""
        entry = self
        while entry.above is not None:
            entry = entry.above
        return entry.parent_span_id


class Retrievals:
    """Hears of spans, and feeds the retrievals among them to their requests.

    Args:
        stores: Database systems whose searches count, until a request's app names others.
    """

    def __init__(self, stores: tuple[str, ...]) -> None:
        self._stores = stores, _lower(stores)
        self._open: dict[int, _Open] = {}

    def started(self, span: Any) -> None:
        """A span has started, in the code that started it."""
        try:
            self._started(span)
        except Exception as error:  # noqa: BLE001 - rule 1: never hurt the host
            faults.contain("retrievals", error)

    def ended(self, span: Any) -> None:
        """A span has ended; ours come here too, and were never started."""
        try:
            entry = self._open.pop(span.context.span_id, None)
            if entry is not None:
                self._ended(span, entry)
        except Exception as error:  # noqa: BLE001 - rule 1: never hurt the host
            faults.contain("retrievals", error)

    def _started(self, span: Any) -> None:
        parent = span.parent
        parent_span_id = 0 if parent is None else parent.span_id
        above = self._open.get(parent_span_id)
        timeline = _request_of(span, parent_span_id) if above is None else above.timeline
        if timeline is None or timeline.closed:
            return
        if len(self._open) >= MAX_OPEN and not self._make_room():
            faults.drop("retrieval_spans")
            return
        self._open[span.context.span_id] = _Open(timeline, above, parent_span_id)

    def _make_room(self) -> bool:
        """Forget spans of requests that are over: some instrumentations never end theirs."""
        over = [span_id for span_id, entry in list(self._open.items()) if entry.timeline.closed]
        for span_id in over:
            self._open.pop(span_id, None)
        return bool(over)

    def _ended(self, span: Any, entry: _Open) -> None:
        found = entry.below
        if is_retrieval(span, self._stores_of(entry.timeline)):
            documents = documents_of(span)
            if documents is not None:
                for inner in found:  # the same documents, on their way up
                    inner.attributes.pop(DOCUMENTS, None)
            interval = _interval(span, entry, documents)
            if entry.timeline.keep_interval(interval):
                found = [*found, interval]
        if entry.above is not None:
            entry.above.below += found

    def _stores_of(self, timeline: Timeline) -> frozenset[str]:
        """Those of the request's app, which another than the one that listens may be."""
        settings, known = timeline.settings, self._stores
        if settings is not None and settings.retrieval_stores is not known[0]:
            known = self._stores = settings.retrieval_stores, _lower(settings.retrieval_stores)
        return known[1]


def _lower(stores: tuple[str, ...]) -> frozenset[str]:
    return frozenset(store.lower() for store in stores)


def _request_of(span: Any, parent_span_id: int) -> Timeline | None:
    """The request that a span without a known parent belongs to."""
    current = context.current()
    if not current.closed or not parent_span_id:
        return current
    trace_id = span.context.trace_id
    for timeline in engines.live_requests():
        identity = timeline.identity
        same = identity is not None and identity.trace_id == trace_id
        if same and parent_span_id in timeline.span_ids():
            return timeline
    return None


def _interval(span: Any, entry: _Open, documents: int | None) -> Interval:
    """The span's time, on the clock of its request."""
    timeline = entry.timeline
    now = timeline.clock.monotonic_ns()
    start = min(max(span.start_time - timeline.wall_offset, timeline.received), now)
    attributes: dict[str, object] = {} if documents is None else {DOCUMENTS: documents}
    interval = Interval(s.RETRIEVAL, start, 0, entry.phase_span_id, attributes)
    interval.end = min(max(span.end_time - timeline.wall_offset, start), now)
    return interval
