"""The verdict on one request: its dominant wait, why, how sure, and what to look at next."""

from __future__ import annotations

from functools import partial
from typing import Final

from llm_trace import semconv as s
from llm_trace.core.record import RequestRecord
from llm_trace.core.verdict import Confidence, Verdict
from llm_trace.diagnosis.case import Case
from llm_trace.diagnosis.floors import UNKNOWN, Floors
from llm_trace.diagnosis.rules import APP_PHASE, EDGE, LOST, NEAR, RULES, Rule

MOST: Final = 0.6
"""Share of the wait from which a phase is surely the one to look at."""

NEGLIGIBLE: Final = 0.05
"""A time to first token up to this share of the request, and under a second, is no concern."""

_SECOND: Final = 1_000_000_000
_CONFIDENCE: Final[tuple[Confidence, ...]] = ("low", "medium", "high")


def judge(record: RequestRecord, floors: Floors | None = None) -> Verdict | None:
    """What `record` waited for.

    The first token comes first: the dominant phase before it is judged, unless decode lost more
    time than the first token took, or the first token was so quick that only decode is left.

    Args:
        record: The finished request.
        floors: What is known of its engine; None: nothing.

    Returns:
        The verdict, or None for a request that is no generation, was rejected, or took no time.
    """
    if record.operation is None or record.outcome == "rejected" or not record.phases:
        return None
    case = Case(record, floors or UNKNOWN)
    if EDGE.holds(case):
        edge = record.edge or 0
        case.blame("edge", edge, edge + case.waited)
        return _say(case, EDGE)
    if record.ttft is not None and _decode_matters(case):
        case.blame(s.DECODE, record.phases[s.DECODE], record.duration)
    else:
        phase = max(case.phases, key=case.phases.__getitem__, default=s.UNATTRIBUTED)
        case.blame(phase, case.phases.get(phase, 0), case.waited)
    rules = RULES.get(case.phase, APP_PHASE)
    return _say(case, next(rule for rule in rules if rule.holds(case)))


def _decode_matters(case: Case) -> bool:
    """Whether decode, and not the wait for the first token, is what to look at."""
    time = case.record.phases.get(s.DECODE, 0)
    if not time:
        return False
    quick = case.waited <= NEGLIGIBLE * case.record.duration and case.waited < _SECOND
    return quick or _lost(case, time) > case.waited


def _lost(case: Case, time: int) -> float:
    """Time that decode took and need not have, as far as a rule would tell it."""
    ratio = case.ratios.decode
    beyond = time * (1 - NEAR / ratio) if ratio is not None and ratio > NEAR else 0
    late = case.late_tail if case.late_tail * 2 >= time else 0
    parts = (case.requeued, case.stall, case.held)
    return max(late, beyond, *(part for part in parts if part >= LOST * time))


def _say(case: Case, rule: Rule) -> Verdict:
    ttft = case.record.ttft
    prefill = case.phases.get(s.PREFILL, 0)
    early = ttft is not None and case.phase in case.phases
    return Verdict(
        rule.cause,
        _CONFIDENCE[rule.sure + (case.share >= MOST)],
        partial(rule.reason, case),
        rule.next_check,
        case.phase,
        case.time,
        case.waited,
        ttft - case.time // 2 if ttft is not None and early else None,
        ttft - prefill // 2 if ttft is not None and prefill else None,
        case.ratios,
    )
