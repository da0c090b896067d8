"""What the engine's state does to more than one phase: cold, out of cache, or silent."""

from __future__ import annotations

from typing import Final

from llm_trace import semconv as s
from llm_trace.diagnosis.case import Case
from llm_trace.diagnosis.rules.limits import HALF, LOST
from llm_trace.diagnosis.rules.rule import Rule, always
from llm_trace.diagnosis.rules.wording import ms, took


def _is_cold(case: Case) -> bool:
    return case.record.start_state == "cold"


def _requeued(case: Case) -> bool:
    part = LOST if case.phase == s.DECODE else HALF
    return case.requeued >= part * case.time > 0


def _requeued_reason(case: Case) -> str:
    times = case.call.preemptions if case.call else 0
    return f"preempted {times} times, it waited again for {ms(case.requeued)}"


LOADING: Final = Rule(
    "cold_start",
    always,
    took("loading the model"),
    "Keep the model or adapter loaded, or load it before traffic comes.",
)
COLD: Final = Rule(
    "cold_start",
    _is_cold,
    lambda c: f"{c.phase} took {ms(c.time)} and the engine was cold",
    "Keep the model loaded, send a warm-up request before traffic, and keep compile caches.",
)
PREEMPTED: Final = Rule(
    "preempted",
    _requeued,
    _requeued_reason,
    "The KV cache was too small for what ran: lower max_num_seqs, give the cache more memory, "
    "quantise it, or add replicas.",
)
NO_SPLIT: Final = Rule(
    "not_enough_evidence",
    always,
    lambda c: f"{c.phase} took {ms(c.time)} and nobody says how it splits",
    "Join the engine: run llm_trace inside vLLM, or mark its moments with engine_call.",
    sure=False,
)
