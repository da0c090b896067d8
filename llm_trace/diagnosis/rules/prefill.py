"""The prompt's computation: what it cost beside its floor, and who shared its steps."""

from __future__ import annotations

import math
from typing import Final

from llm_trace.diagnosis.case import Case
from llm_trace.diagnosis.rules.limits import NEAR
from llm_trace.diagnosis.rules.rule import Rule, always
from llm_trace.diagnosis.rules.wording import WRONG_INPUTS, ms

SHORT_PROMPT: Final = 64
"""Computed tokens up to which no engine needs long for their own sake."""

LONG_PROMPT: Final = 256
"""Computed tokens from which a cache that is off may have cost something."""

CHUNKED: Final = 1.5
"""Times more steps than a prompt alone needs, from which others took their part of each."""


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


def _near(case: Case) -> bool:
    return case.ratios.prefill is not None and case.ratios.prefill <= NEAR


def _far(case: Case) -> bool:
    return case.ratios.prefill is not None and case.ratios.prefill > NEAR


def _few_tokens(case: Case) -> bool:
    return case.computed is not None and case.computed <= SHORT_PROMPT


def _counted(case: Case) -> bool:
    return case.computed is not None


def _reason(case: Case) -> str:
    facts, call = [f"prefill took {ms(case.time)}"], case.call
    if call is not None and case.computed is not None:
        facts.append(f"{case.computed} of {call.usage.input_tokens} prompt tokens computed")
    if call is not None and call.prefill_chunks is not None:
        facts.append(f"in {call.prefill_chunks} steps")
    if call is not None and call.running is not None:
        facts.append(f"beside {call.running} others")
    if case.ratios.prefill is not None:
        facts.append(f"{case.ratios.prefill:.1f} times its floor")
    return ", ".join(facts)


UNDER_FLOOR: Final = Rule(
    "prefill",
    _under_floor,
    lambda c: f"{_reason(c)}, {WRONG_INPUTS}",
    "Correct the settings `device` and `model_config`, then look again.",
    sure=False,
)
CACHE_OFF: Final = Rule(
    "cache_lost",
    _cache_off,
    lambda c: f"{_reason(c)}, and the prefix cache is off",
    "Turn prefix caching on: what this prompt shares with others is computed anew each time.",
)
CONTENDED: Final = Rule(
    "prefill_contended",
    _contended,
    _reason,
    "Other requests shared its steps: look at the load, raise max_num_batched_tokens, or keep "
    "prefill apart from decode.",
)
NEAR_FLOOR: Final = Rule(
    "prefill_near_floor",
    _near,
    _reason,
    "The device does what it can: shorten the prompt, share prefixes so that they are cached, "
    "or use more compute.",
)
FAR_FROM_FLOOR: Final = Rule(
    "prefill_far_from_floor",
    _far,
    _reason,
    "Far from what the device can do, and alone: look at clocks and throttling, the attention "
    "backend, eager mode and the size of chunks.",
)
FEW_TOKENS: Final = Rule(
    "prefill",
    _few_tokens,
    _reason,
    "So few tokens need no time of their own: the engine was busy with others, or starved. "
    "Look at the CPU of the engine core, at clocks, and at what ran beside it.",
    sure=False,
)
COUNTED: Final = Rule(
    "prefill",
    _counted,
    _reason,
    "Shorten or cache the prompt, or compute it faster. Set `device` and `model_config` to "
    "know how far it is from its floor.",
)
UNCOUNTED: Final = Rule(
    "prefill",
    always,
    _reason,
    "Let the engine report its tokens (in vLLM --enable-prompt-tokens-details), to tell a long "
    "prompt from a slow engine.",
    sure=False,
)
