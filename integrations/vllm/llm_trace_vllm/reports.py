"""What an engine said of its batch after each step, for those who are scheduled into it next."""

from __future__ import annotations

from collections import deque
from typing import Any, Final, NamedTuple

from llm_trace.core.engine_call import Batch

_KEPT: Final = 512
"""Steps back to which a first schedule can be looked up: a prompt in more chunks has no batch."""


class _Report(NamedTuple):
    at: int
    batch: Batch


class Reports:
    """The latest reports of one engine."""

    __slots__ = ("_reports",)

    def __init__(self) -> None:
        self._reports: deque[_Report] = deque(maxlen=_KEPT)

    def add(self, stats: Any, at: int) -> None:
        """The engine's `SchedulerStats` of the step that was over at `at`, monotonic ns."""
        waiting = stats.num_waiting_reqs + getattr(stats, "num_skipped_waiting_reqs", 0)
        usage = getattr(stats, "kv_cache_usage", None)
        self._reports.append(_Report(at, Batch(stats.num_running_reqs, waiting, usage)))

    def before(self, scheduled: int) -> Batch | None:
        """What a step found that began at `scheduled`, ns; None where it is forgotten."""
        for report in reversed(self._reports):
            if report.at <= scheduled:
                return report.batch
        return None
