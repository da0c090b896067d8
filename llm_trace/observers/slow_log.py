"""One log line for a slow request: its trace, its phases and its verdict; at most one a second."""

from __future__ import annotations

from typing import Final

from llm_trace import semconv as s
from llm_trace.core import faults
from llm_trace.core.record import RequestRecord
from llm_trace.core.verdict import Judge, Verdict

EVERY: Final = 1_000_000_000
"""Least ns between two lines."""


class SlowLog:
    """Logs requests whose client waited too long for the first token, or for the end without one.

    Args:
        seconds: How long is too long.
        judge: Finds the verdict.
    """

    def __init__(self, seconds: float, judge: Judge) -> None:
        self._threshold = round(seconds * 1e9)
        self._judge = judge
        self._last = -EVERY
        self._kept_back = 0

    def observe(self, record: RequestRecord) -> None:
        """Log `record` where it is slow; those that come too soon are counted in the next line."""
        ttft = record.ttft
        if record.operation is None or self._threshold > (
            record.duration if ttft is None else ttft
        ):
            return
        if record.finished - self._last < EVERY:
            self._kept_back += 1
            return
        verdict = self._judge(record)
        if verdict is None:
            return
        self._last = record.finished
        facts = _facts(record, verdict, self._kept_back)
        self._kept_back = 0
        line = " ".join(f"{key}={_quoted(value)}" for key, value in facts.items())
        faults.log().warning("llm_trace: slow request %s", line, extra={"llm_trace": facts})


def _facts(record: RequestRecord, verdict: Verdict, kept_back: int) -> dict[str, str | float]:
    """What the line says: names of attributes, times in seconds."""
    identity = record.identity
    facts: dict[str, str | float | None] = {
        "trace_id": f"{identity.trace_id:032x}" if identity else None,
        s.REQUEST_MODEL: record.model,
        s.OUTCOME: record.outcome,
        s.TTFT: _seconds(record.ttft),
        "duration": _seconds(record.duration),
        s.VERDICT: verdict.cause,
        s.VERDICT_CONFIDENCE: verdict.confidence,
        s.VERDICT_REASON: verdict.reason,
        s.VERDICT_NEXT_CHECK: verdict.next_check,
        "not_logged": kept_back or None,
    }
    return {key: value for key, value in facts.items() if value is not None}


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else round(ns / 1e9, 6)


def _quoted(value: str | float) -> str:
    """As logfmt has it: text with spaces in quotes, and no line breaks."""
    text = str(value)
    if text.isprintable() and not any(c in ' "=' for c in text):
        return text
    safe = "".join(c if c.isprintable() else "?" for c in text)
    return '"' + safe.replace("\\", "\\\\").replace('"', '\\"') + '"'
