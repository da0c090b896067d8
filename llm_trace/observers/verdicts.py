"""Counts verdicts, and how far above their floors requests ran."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any

from llm_trace import semconv as s
from llm_trace.core.record import RequestRecord
from llm_trace.core.verdict import Judge
from llm_trace.observers.metrics import Instruments
from llm_trace.observers.samples import ids

Base = tuple[str, str, str]


class VerdictObserver:
    """Records what the judge says of each request.

    Args:
        instruments: Where samples go.
        judge: Finds the verdict.
        labels: The labels that a record has in common with every request metric.
    """

    def __init__(
        self, instruments: Instruments, judge: Judge, labels: Callable[[RequestRecord], Base]
    ) -> None:
        self._instruments = instruments
        self._judge = judge
        self._labels = labels
        self._children: dict[tuple[Any, ...], Any] = {}

    def observe(self, record: RequestRecord) -> None:
        """Count the verdict on `record`; the first token's wait, or the whole one, is its band."""
        verdict = self._judge(record)
        if verdict is None:
            return
        base = self._labels(record)
        band = s.TTFT_BAND_LABELS[bisect_left(s.TTFT_BANDS, verdict.waited / 1e9)]
        self._child(s.VERDICTS_COUNTED, *base, verdict.cause, band).inc()
        for metric, ratio in (
            (s.PREFILL_RATIO, verdict.ratios.prefill),
            (s.DECODE_RATIO, verdict.ratios.decode),
        ):
            if ratio is not None:
                self._child(metric, *base).observe(ratio, _exemplar(record))

    def _child(self, metric: s.Metric, *labels: str) -> Any:
        key = (metric.name, labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = self._instruments.child(metric, labels)
        return child


def _exemplar(record: RequestRecord) -> dict[str, str] | None:
    identity = record.identity
    return ids(identity) if identity is not None and identity.sampled else None
