"""What an engine said of its batch after each step, for those who are scheduled into it next."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Any, Final, NamedTuple

from llm_trace.core.engine_call import Batch

_KEPT: Final = 512
"""Steps back to which a first schedule can be looked up: a prompt in more chunks has no batch."""


_WAIT: Final = 32
"""Steps of a wait that are looked at: what ended it was full until the last of them."""


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
        deferred = getattr(stats, "num_skipped_waiting_reqs", 0)
        usage = getattr(stats, "kv_cache_usage", None)
        running, waiting = stats.num_running_reqs, stats.num_waiting_reqs + deferred
        self._reports.append(_Report(at, Batch(running, waiting, usage, deferred=deferred)))

    def before(self, scheduled: int, queued: int = 0) -> Batch | None:
        """What a step found that began at `scheduled`, ns; None where it is forgotten.

        Args:
            scheduled: When the request was first scheduled.
            queued: Since when it waited; 0: it is not known.
        """
        earlier = (report for report in reversed(self._reports) if report.at <= scheduled)
        last = next(earlier, None)
        if last is None or not queued:
            return last and last.batch
        wait = [last.batch]
        for report in islice(earlier, _WAIT):
            if report.at < queued:
                break
            wait.append(report.batch)
        usages = [batch.kv_usage for batch in wait if batch.kv_usage is not None]
        return last.batch._replace(
            deferred=max([batch.deferred for batch in wait]),
            most_running=max([batch.running for batch in wait]),
            most_kv_usage=max(usages, default=None),
        )
