"""A blocked event loop: it may lengthen any phase in which the app has something to do."""

from __future__ import annotations

from typing import Final

from llm_trace.diagnosis.case import Case
from llm_trace.diagnosis.rules.limits import HALF
from llm_trace.diagnosis.rules.rule import Rule
from llm_trace.diagnosis.rules.wording import ms


def blocked(case: Case) -> bool:
    """The loop stood still for much of the phase."""
    return (case.record.loop_lag or 0) >= HALF * case.time > 0


def _reason(case: Case) -> str:
    lag = f"the event loop was blocked for {ms(case.record.loop_lag or 0)}"
    return f"{lag} while {case.phase} took {ms(case.time)}"


BLOCKED: Final = Rule(
    "event_loop",
    blocked,
    _reason,
    "Find what blocks the event loop: synchronous I/O, tokenisation or CPU work in an async "
    "handler. Move it to a thread, or add workers.",
)
