"""What all retrievals of a request brought together; nothing is counted twice."""

from __future__ import annotations

from collections.abc import Mapping

from llm_trace import semconv as s
from llm_trace.core.record import IntervalRecord, RequestRecord
from llm_trace.core.usage import count


def brought(record: RequestRecord, what: str) -> int | None:
    """The sum of `what`, such as documents, over the retrievals; None where none says it.

    Of a retrieval inside another the outer one counts, where it says it too: what was found by the
    client of a store is what `llm_trace.retrieval()` around it hands on.
    """
    ours = {each.span_id: each for each in record.intervals if each.span_id}
    said = [
        number
        for each in record.intervals
        if (number := _said(each, what)) is not None and not _is_inside(each, ours, what)
    ]
    return sum(said) if said else None


def _said(interval: IntervalRecord, what: str) -> int | None:
    return count(interval.attributes.get(what)) if interval.phase == s.RETRIEVAL else None


def _is_inside(interval: IntervalRecord, ours: Mapping[int, IntervalRecord], what: str) -> bool:
    """Whether an enclosing retrieval says it; ids of parents come from outside and may circle."""
    for _ in ours:
        parent = ours.get(interval.parent_span_id)
        if parent is None:
            return False
        if _said(parent, what) is not None:
            return True
        interval = parent
    return False
