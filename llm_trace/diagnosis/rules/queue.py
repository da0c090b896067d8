"""The wait for the engine: on the way to its scheduler, for a slot, for cache, for other things."""

from __future__ import annotations

from typing import Final

from llm_trace.diagnosis.case import Case
from llm_trace.diagnosis.rules import event_loop
from llm_trace.diagnosis.rules.limits import HALF
from llm_trace.diagnosis.rules.rule import Rule, always
from llm_trace.diagnosis.rules.wording import ms

FULL: Final = 0.9
"""Share of the cache in use from which it, not slots, keeps requests out."""


def _before_engine(case: Case) -> bool:
    return case.before_engine >= HALF * case.time > 0


def _all_slots_taken(case: Case) -> bool:
    slots, running = case.floors.slots, case.most_running
    return slots is not None and running is not None and running >= slots


def _cache_full(case: Case) -> bool:
    usage = case.most_kv_usage
    return usage is not None and usage >= FULL


def _room_for_more(case: Case) -> bool:
    """Fewer ran than could, all the time that it waited."""
    call, slots, running = case.call, case.floors.slots, case.most_running
    if call is None or call.most_running is None or slots is None or running is None:
        return False
    return running < slots and case.most_kv_usage is not None


def _others_there(case: Case) -> bool:
    """And nobody said how many could."""
    if case.floors.slots is not None:
        return False
    return bool(case.most_running) and case.most_kv_usage is not None


def _reason(case: Case) -> str:
    facts, call = [f"it queued for {ms(case.time)}"], case.call
    if case.most_running is not None:
        slots = f" in {case.floors.slots} slots" if case.floors.slots else ""
        facts.append(f"{case.most_running} ran{slots}")
    if call is not None and call.waiting is not None:
        facts.append(f"{call.waiting} waited")
    if call is not None and call.deferred:
        facts.append(f"{call.deferred} of them for something else than room")
    if case.most_kv_usage is not None:
        facts.append(f"the KV cache was {case.most_kv_usage:.0%} full")
    return ", ".join(facts)


BLOCKED_BEFORE_ENGINE: Final = event_loop.BLOCKED._replace(
    holds=lambda c: _before_engine(c) and event_loop.blocked(c)
)
BEFORE_ENGINE: Final = Rule(
    "queue_before_engine",
    _before_engine,
    lambda c: f"the engine's scheduler had it {ms(c.before_engine)} after the hand-off",
    "The API server or the way to the engine core is the limit: tokenisation, a busy event "
    "loop, a long engine step. Look at its CPU, and try more API servers.",
)
ALL_SLOTS_TAKEN: Final = Rule(
    "queue_slots",
    _all_slots_taken,
    _reason,
    "All slots were taken: raise max_num_seqs if the KV cache has room, shorten answers, or "
    "add replicas.",
)
CACHE_FULL: Final = Rule(
    "queue_kv_cache",
    _cache_full,
    _reason,
    "The KV cache was full: give it more memory, quantise it, shorten contexts, or add "
    "replicas. More slots would not help.",
)
ROOM_FOR_MORE: Final = Rule(
    "queue_deferred",
    _room_for_more,
    _reason,
    "Slots and cache had room: something else held it back. Look at long steps and at their "
    "token budget (max_num_batched_tokens, taken by long prompts), LoRA slots, structured "
    "output and KV transfer.",
)
OTHERS_RAN: Final = Rule(
    "queue_slots",
    _others_there,
    _reason,
    "Others ran and the KV cache had room, so slots are the likely limit: compare "
    "vllm:num_requests_running with max_num_seqs.",
    sure=False,
)
QUEUED: Final = Rule(
    "queue",
    always,
    _reason,
    "Look at the engine's running and waiting requests and at its KV cache at that time.",
    sure=False,
)
