"""The answer after its first token: stalls, and its pace beside the floor."""

from __future__ import annotations

from typing import Final

from llm_trace.diagnosis.case import Case
from llm_trace.diagnosis.rules.limits import LOST, NEAR
from llm_trace.diagnosis.rules.rule import Rule, always
from llm_trace.diagnosis.rules.wording import WRONG_INPUTS, ms


def _stalled(case: Case) -> bool:
    return case.stall >= LOST * case.time > 0


def _stalled_by_prefill(case: Case) -> bool:
    return _stalled(case) and case.call is not None and case.call.stall_cause == "prefill"


def _stall_reason(case: Case) -> str:
    cause = case.call.stall_cause if case.call is not None else None
    by = f", mostly by {cause}" if cause else ""
    return f"decode stood still for {ms(case.stall)} beyond its usual pace{by}"


def _near(case: Case) -> bool:
    return case.ratios.decode is not None and 1 <= case.ratios.decode <= NEAR


def _far(case: Case) -> bool:
    return case.ratios.decode is not None and case.ratios.decode > NEAR


def _reason(case: Case) -> str:
    tokens = case.record.usage.output_tokens
    facts = [f"decode took {ms(case.time)}, {case.share:.0%} of {ms(case.record.duration)}"]
    if tokens:
        facts.append(f"{tokens} tokens")
    each = case.record.time_per_output_token
    if each is not None:
        facts.append(f"{ms(each)} each")
    if case.ratios.decode is not None:
        facts.append(f"{case.ratios.decode:.1f} times its floor")
        if case.ratios.decode < 1:
            facts.append(WRONG_INPUTS)
    return ", ".join(facts)


STALLED_BY_PREFILL: Final = Rule(
    "decode_stalled",
    _stalled_by_prefill,
    _stall_reason,
    "Prompts of others were computed between its tokens: lower max_num_batched_tokens, or keep "
    "prefill apart from decode.",
)
STALLED: Final = Rule(
    "decode_stalled",
    _stalled,
    _stall_reason,
    "Look at what happened in its longest gap (llm_trace.decode.max_token_gap): garbage "
    "collection, a busy engine core, clocks, preemption of others.",
    sure=False,
)
NEAR_FLOOR: Final = Rule(
    "decode_near_floor",
    _near,
    _reason,
    "The device does what it can: shorten answers, quantise weights or cache, use speculative "
    "decoding or a device with more bandwidth.",
)
FAR_FROM_FLOOR: Final = Rule(
    "decode_far_from_floor",
    _far,
    _reason,
    "Far from what the memory allows: look at the size of the batch, eager mode, clocks, and "
    "the CPU of the engine core.",
)
LONG_ANSWER: Final = Rule(
    "decode",
    always,
    _reason,
    "The answer's length made most of it. Set `device` and `model_config` to know how far its "
    "pace is from the floor.",
    sure=False,
)
