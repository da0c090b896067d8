"""Which traces are worth keeping, decided when a request is over and all of it is known.

Slow, failed, cancelled and cold requests are kept, and a share of the rest, by the trace's own
randomness. What is left out has the same metrics as ever, but no exemplar: there is no trace that
one could lead to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from llm_trace import semconv as s
from llm_trace.core import consistent
from llm_trace.core.identity import TraceIdentity
from llm_trace.core.record import RequestRecord

SLOW: Final = 4.0
"""Seconds from which a request is slow where the settings do not say."""

_FAILED: Final = frozenset({"error", "timeout", "truncated"})


class TailSampler:
    """Decides about the trace of each finished request.

    Args:
        share: How many of the ordinary ones are kept, 0 to 1.
        slow: Seconds to the first token, or to the end without one, from which one is slow.
        settle: Told of each decision: the trace, and whether it is kept.
        is_whole: Whether every trace that begins here reaches us, so that we know what share of
            all we keep.
    """

    def __init__(
        self,
        share: float,
        slow: float | None = None,
        *,
        settle: Callable[[int, bool], None] = lambda _trace_id, _kept: None,
        is_whole: Callable[[], bool] = lambda: False,
    ) -> None:
        self._share = share
        self._threshold = consistent.threshold(share)
        self._slow = round((slow or SLOW) * 1e9)
        self._settle = settle
        self._is_whole = is_whole

    def __call__(self, record: RequestRecord) -> RequestRecord:
        """`record` as one whose trace is kept, or as an unsampled one."""
        identity = record.identity
        if identity is None or not identity.sampled:
            return record
        why = self._why(record)
        # Who sampled before us and said by how much has kept none below that.
        before = consistent.threshold_of(identity.trace_state)
        threshold = max(0 if why else self._threshold, before or 0)
        kept = bool(why) or consistent.randomness(identity) >= threshold
        self._settle(identity.trace_id, kept)
        if not kept:
            return replace(record, identity=replace(identity, sampled=False))
        if before is not None or (self._is_whole() and not identity.parent_span_id):
            identity = _told(identity, threshold)
        said = {
            s.SAMPLING_REASON: why or "share",
            s.SAMPLING_RATIO: 1.0 if why else self._share,
        }
        return replace(record, identity=identity, attributes={**record.attributes, **said})

    def _why(self, record: RequestRecord) -> str | None:
        """What makes a request worth its trace, whatever the share."""
        if record.outcome in _FAILED:
            return "failed"
        if record.outcome == "cancelled":
            return "cancelled"
        if record.start_state == "cold":
            return "cold"
        waited = record.duration if record.ttft is None else record.ttft
        return "slow" if waited >= self._slow else None


def _told(identity: TraceIdentity, threshold: int) -> TraceIdentity:
    return replace(identity, trace_state=consistent.with_threshold(identity.trace_state, threshold))
