"""Which fact makes which verdict: a decision list for each phase, first rule that holds.

The dominant phase says where the time went; its rules say why, from the most telling fact to the
least. A rule whose numbers are absent does not hold, so what nobody measured is never blamed, and
the last rule of each list needs nothing but the phase itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from llm_trace import semconv as s
from llm_trace.diagnosis.case import Case

NEAR: Final = 3.0
"""Measured over floor up to which nothing but less work or more hardware helps: good kernels reach
a third to two thirds of the peaks."""

FULL: Final = 0.9
"""Share of the cache in use from which it, not slots, keeps requests out."""

HALF: Final = 0.5
"""Part of a phase that a fact must explain to be its cause."""

LOST: Final = 0.2
"""Part of decode that it must have lost to one thing for that to be its cause."""

SHORT_PROMPT: Final = 64
"""Computed tokens up to which no engine needs long for their own sake."""

LONG_PROMPT: Final = 256
"""Computed tokens from which a cache that is off may have cost something."""

CHUNKED: Final = 1.5
"""Times more steps than a prompt alone needs, from which others took their part of each."""


class Rule(NamedTuple):
    """A verdict, the fact that makes it, and what to do about it."""

    cause: str
    holds: Callable[[Case], bool]
    reason: Callable[[Case], str]
    next_check: str
    sure: bool = True
    """The fact names this cause; not merely fits it."""


def _always(_case: Case) -> bool:
    return True


_SECOND: Final = 1e9


def _ms(ns: float) -> str:
    return f"{ns / 1e6:.1f} ms" if ns < _SECOND else f"{ns / _SECOND:.2f} s"


def _took(what: str) -> Callable[[Case], str]:
    def reason(case: Case) -> str:
        return f"{what} took {_ms(case.time)}, {case.share:.0%} of {_ms(case.waited)}"

    return reason


# --- facts ------------------------------------------------------------------------------------


def _blocked(case: Case) -> bool:
    return (case.record.loop_lag or 0) >= HALF * case.time > 0


def _blocked_reason(case: Case) -> str:
    lag = f"the event loop was blocked for {_ms(case.record.loop_lag or 0)}"
    return f"{lag} while {case.phase} took {_ms(case.time)}"


def _held(case: Case) -> bool:
    return case.record.send_wait >= HALF * case.time > 0


def _held_in_decode(case: Case) -> bool:
    return case.held >= LOST * case.time > 0


def _is_cold(case: Case) -> bool:
    return case.record.start_state == "cold"


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


def _queue_reason(case: Case) -> str:
    facts, call = [f"it queued for {_ms(case.time)}"], case.call
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


def _requeued(case: Case) -> bool:
    part = LOST if case.phase == s.DECODE else HALF
    return case.requeued >= part * case.time > 0


def _requeued_reason(case: Case) -> str:
    times = case.call.preemptions if case.call else 0
    return f"preempted {times} times, it waited again for {_ms(case.requeued)}"


def _under_floor(case: Case) -> bool:
    return case.ratios.prefill is not None and case.ratios.prefill < 1


def _cache_off(case: Case) -> bool:
    return case.floors.prefix_caching is False and (case.computed or 0) >= LONG_PROMPT


def _contended(case: Case) -> bool:
    """It shared its steps: they were more than it needs alone, or it was slow among others."""
    if _too_many_chunks(case):
        return True
    ratio = case.ratios.prefill
    beside = case.call.running if case.call is not None else None
    return ratio is not None and ratio > NEAR and bool(beside)


def _too_many_chunks(case: Case) -> bool:
    budget, computed = case.floors.step_tokens, case.computed
    chunks = case.call.prefill_chunks if case.call is not None else None
    if not budget or not computed or not chunks:
        return False
    alone = math.ceil(computed / budget)
    return chunks >= CHUNKED * alone and chunks > alone + 1


def _prefill_near(case: Case) -> bool:
    return case.ratios.prefill is not None and case.ratios.prefill <= NEAR


def _prefill_far(case: Case) -> bool:
    return case.ratios.prefill is not None and case.ratios.prefill > NEAR


def _few_tokens(case: Case) -> bool:
    return case.computed is not None and case.computed <= SHORT_PROMPT


def _counted(case: Case) -> bool:
    return case.computed is not None


def _prefill_reason(case: Case) -> str:
    facts, call = [f"prefill took {_ms(case.time)}"], case.call
    if call is not None and case.computed is not None:
        facts.append(f"{case.computed} of {call.usage.input_tokens} prompt tokens computed")
    if call is not None and call.prefill_chunks is not None:
        facts.append(f"in {call.prefill_chunks} steps")
    if call is not None and call.running is not None:
        facts.append(f"beside {call.running} others")
    if case.ratios.prefill is not None:
        facts.append(f"{case.ratios.prefill:.1f} times its floor")
    return ", ".join(facts)


def _decode_near(case: Case) -> bool:
    return case.ratios.decode is not None and 1 <= case.ratios.decode <= NEAR


def _decode_far(case: Case) -> bool:
    return case.ratios.decode is not None and case.ratios.decode > NEAR


def _stalled(case: Case) -> bool:
    return case.stall >= LOST * case.time > 0


def _stalled_by_prefill(case: Case) -> bool:
    return _stalled(case) and case.call is not None and case.call.stall_cause == "prefill"


def _stall_reason(case: Case) -> str:
    cause = case.call.stall_cause if case.call is not None else None
    by = f", mostly by {cause}" if cause else ""
    return f"decode stood still for {_ms(case.stall)} beyond its usual pace{by}"


def _decode_reason(case: Case) -> str:
    tokens = case.record.usage.output_tokens
    facts = [f"decode took {_ms(case.time)}, {case.share:.0%} of {_ms(case.record.duration)}"]
    if tokens:
        facts.append(f"{tokens} tokens")
    each = case.record.time_per_output_token
    if each is not None:
        facts.append(f"{_ms(each)} each")
    if case.ratios.decode is not None:
        facts.append(f"{case.ratios.decode:.1f} times its floor")
        if case.ratios.decode < 1:
            facts.append(WRONG_INPUTS)
    return ", ".join(facts)


def _tail(case: Case) -> bool:
    return case.late_tail >= HALF * case.time > 0


def _tail_reason(case: Case) -> str:
    return f"the last token was sent {_ms(case.late_tail)} after the engine made it"


WRONG_INPUTS: Final = (
    "which is under 1: the settings `device` and `model_config` do not describe this engine"
)


# --- the tables -------------------------------------------------------------------------------

_LOOP: Final = Rule(
    "event_loop",
    _blocked,
    _blocked_reason,
    "Find what blocks the event loop: synchronous I/O, tokenisation or CPU work in an async "
    "handler. Move it to a thread, or add workers.",
)
_HELD: Final = Rule(
    "back_pressure",
    _held,
    lambda c: f"`send` held the answer for {_ms(c.record.send_wait)} of {_ms(c.time)}",
    "The client or a proxy reads more slowly than tokens are made: look at its network and at the "
    "proxy's buffers.",
)
_HELD_IN_DECODE: Final = Rule(
    "back_pressure",
    _held_in_decode,
    lambda c: f"`send` held the answer for {_ms(c.held)} of {_ms(c.time)}",
    _HELD.next_check,
)
_TAIL: Final = Rule(
    "delivery",
    _tail,
    _tail_reason,
    "Tokens were ready and not handed over: look at llm_trace_event_loop_lag_seconds and at what "
    "the app does with each chunk.",
    sure=False,
)
_COLD: Final = Rule(
    "cold_start",
    _is_cold,
    lambda c: f"{c.phase} took {_ms(c.time)} and the engine was cold",
    "Keep the model loaded, send a warm-up request before traffic, and keep compile caches.",
)
_PREEMPTED: Final = Rule(
    "preempted",
    _requeued,
    _requeued_reason,
    "The KV cache was too small for what ran: lower max_num_seqs, give the cache more memory, "
    "quantise it, or add replicas.",
)
_NO_SPLIT: Final = Rule(
    "not_enough_evidence",
    _always,
    lambda c: f"{c.phase} took {_ms(c.time)} and nobody says how it splits",
    "Join the engine: run llm_trace inside vLLM, or mark its moments with engine_call.",
    sure=False,
)

_QUEUE: Final = (
    Rule(
        "event_loop",
        lambda c: _before_engine(c) and _blocked(c),
        _blocked_reason,
        _LOOP.next_check,
    ),
    Rule(
        "queue_before_engine",
        _before_engine,
        lambda c: f"the engine's scheduler had it {_ms(c.before_engine)} after the hand-off",
        "The API server or the way to the engine core is the limit: tokenisation, a busy event "
        "loop, a long engine step. Look at its CPU, and try more API servers.",
    ),
    Rule(
        "queue_slots",
        _all_slots_taken,
        _queue_reason,
        "All slots were taken: raise max_num_seqs if the KV cache has room, shorten answers, or "
        "add replicas.",
    ),
    Rule(
        "queue_kv_cache",
        _cache_full,
        _queue_reason,
        "The KV cache was full: give it more memory, quantise it, shorten contexts, or add "
        "replicas. More slots would not help.",
    ),
    Rule(
        "queue_deferred",
        _room_for_more,
        _queue_reason,
        "Slots and cache had room: something else held it back. Look at long steps and at their "
        "token budget (max_num_batched_tokens, taken by long prompts), LoRA slots, structured "
        "output and KV transfer.",
    ),
    Rule(
        "queue_slots",
        _others_there,
        _queue_reason,
        "Others ran and the KV cache had room, so slots are the likely limit: compare "
        "vllm:num_requests_running with max_num_seqs.",
        sure=False,
    ),
    Rule(
        "queue",
        _always,
        _queue_reason,
        "Look at the engine's running and waiting requests and at its KV cache at that time.",
        sure=False,
    ),
)

_PREFILL: Final = (
    _COLD,
    _PREEMPTED,
    Rule(
        "prefill",
        _under_floor,
        lambda c: f"{_prefill_reason(c)}, {WRONG_INPUTS}",
        "Correct the settings `device` and `model_config`, then look again.",
        sure=False,
    ),
    Rule(
        "cache_lost",
        _cache_off,
        lambda c: f"{_prefill_reason(c)}, and the prefix cache is off",
        "Turn prefix caching on: what this prompt shares with others is computed anew each time.",
    ),
    Rule(
        "prefill_contended",
        _contended,
        _prefill_reason,
        "Other requests shared its steps: look at the load, raise max_num_batched_tokens, or keep "
        "prefill apart from decode.",
    ),
    Rule(
        "prefill_near_floor",
        _prefill_near,
        _prefill_reason,
        "The device does what it can: shorten the prompt, share prefixes so that they are cached, "
        "or use more compute.",
    ),
    Rule(
        "prefill_far_from_floor",
        _prefill_far,
        _prefill_reason,
        "Far from what the device can do, and alone: look at clocks and throttling, the attention "
        "backend, eager mode and the size of chunks.",
    ),
    Rule(
        "prefill",
        _few_tokens,
        _prefill_reason,
        "So few tokens need no time of their own: the engine was busy with others, or starved. "
        "Look at the CPU of the engine core, at clocks, and at what ran beside it.",
        sure=False,
    ),
    Rule(
        "prefill",
        _counted,
        _prefill_reason,
        "Shorten or cache the prompt, or compute it faster. Set `device` and `model_config` to "
        "know how far it is from its floor.",
    ),
    Rule(
        "prefill",
        _always,
        _prefill_reason,
        "Let the engine report its tokens (in vLLM --enable-prompt-tokens-details), to tell a long "
        "prompt from a slow engine.",
        sure=False,
    ),
)

_DECODE: Final = (
    _PREEMPTED,
    _HELD_IN_DECODE,
    Rule(
        "decode_stalled",
        _stalled_by_prefill,
        _stall_reason,
        "Prompts of others were computed between its tokens: lower max_num_batched_tokens, or keep "
        "prefill apart from decode.",
    ),
    Rule(
        "decode_stalled",
        _stalled,
        _stall_reason,
        "Look at what happened in its longest gap (llm_trace.decode.max_token_gap): garbage "
        "collection, a busy engine core, clocks, preemption of others.",
        sure=False,
    ),
    _TAIL,
    Rule(
        "decode_near_floor",
        _decode_near,
        _decode_reason,
        "The device does what it can: shorten answers, quantise weights or cache, use speculative "
        "decoding or a device with more bandwidth.",
    ),
    Rule(
        "decode_far_from_floor",
        _decode_far,
        _decode_reason,
        "Far from what the memory allows: look at the size of the batch, eager mode, clocks, and "
        "the CPU of the engine core.",
    ),
    Rule(
        "decode",
        _always,
        _decode_reason,
        "The first token was quick; the answer's length made the rest. Set `device` and "
        "`model_config` to know how far its pace is from the floor.",
        sure=False,
    ),
)

_DELIVERY: Final = (
    _LOOP,
    _HELD,
    Rule(
        "delivery",
        _always,
        _took("handing the token to the client"),
        "Look at the event loop's lag, at detokenisation and at middlewares that buffer.",
        sure=False,
    ),
)

RULES: Final[Mapping[str, tuple[Rule, ...]]] = {
    s.ADMISSION: (
        _LOOP,
        Rule(
            "admission",
            _always,
            _took("admission"),
            "Look at what the app does before it accepts a request: auth, limits, validation, and "
            "the upload of the body.",
        ),
    ),
    s.RETRIEVAL: (
        Rule(
            "retrieval",
            _always,
            _took("retrieval"),
            "Look at the retrieval spans: the slowest store, the number of documents, calls that "
            "could run side by side.",
        ),
    ),
    s.MODEL_LOAD: (
        Rule(
            "cold_start",
            _always,
            _took("loading the model"),
            "Keep the model or adapter loaded, or load it before traffic comes.",
        ),
    ),
    s.PREPARE: (
        _LOOP,
        Rule(
            "prepare",
            _always,
            _took("preparing the prompt"),
            "Look at prompt assembly, the chat template and tokenisation; name the parts with "
            "llm_trace.phase.",
        ),
    ),
    s.GENERATION: (
        Rule(
            "generation",
            _always,
            _took("earlier model calls"),
            "Shorten or drop the calls before the answer, run them side by side, or use a smaller "
            "model for them.",
        ),
    ),
    s.NETWORK: (
        Rule(
            "network",
            _always,
            _took("the way to the engine and back"),
            "Look at the connections to the engine: pools, TLS, proxies, distance.",
        ),
    ),
    s.QUEUE_WAIT: _QUEUE,
    s.PREFILL: _PREFILL,
    s.ENGINE: (_COLD, _NO_SPLIT),
    s.UNATTRIBUTED: (_LOOP, _NO_SPLIT),
    s.FIRST_TOKEN: _DELIVERY,
    s.DECODE: _DECODE,
    s.FINISH: (_HELD_IN_DECODE, _TAIL, *_DELIVERY),
}

APP_PHASE: Final = (
    Rule(
        "app_phase",
        _always,
        lambda c: f"{c.phase} took {_ms(c.time)}, {c.share:.0%} of {_ms(c.waited)}",
        "Look at the app's own phase of that name.",
    ),
)
"""For phases that the app named itself."""

EDGE: Final = Rule(
    "edge",
    lambda c: (c.record.edge or 0) > c.waited,
    lambda c: (
        f"it took {_ms(c.record.edge or 0)} from the edge to this server, and {_ms(c.waited)} here"
    ),
    "Look at what stands before the server: the load balancer's queue, the proxy, the server's "
    "backlog. Both clocks must agree.",
    sure=False,
)
"""Asked before all: its time lies outside the ledger."""
