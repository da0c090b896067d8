"""Burn-rate alerts: the budget that burns, joined with the phase that ate most of it.

So the label `llm_trace_phase` tells whom to wake. Two windows, as in the SRE workbook: the long
one says that it is no blip, the short one that it still goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dashboards import knobs, rules
from dashboards import queries as q
from dashboards.alert import MODEL, PHASE, SHARE, Alert
from llm_trace import semconv as s


def _percent(part: float) -> str:
    return f"{100 * part:.3g}%"


TTFT_BUDGET: Final = _percent(1 - knobs.TTFT_OBJECTIVE)
TPOT_BUDGET: Final = _percent(1 - knobs.TPOT_OBJECTIVE)
AVAILABILITY_BUDGET: Final = _percent(1 - knobs.AVAILABILITY_OBJECTIVE)


def _burning(miss: Callable[[str], str], objective: float, burn: knobs.Burn, every: str) -> str:
    """Both windows above what the objective allows, of a model with enough requests to tell."""
    limit = round(burn.factor * (1 - objective), 6)
    enough = q.at_least(knobs.ENOUGH, every, burn.long)
    return f"({miss(burn.short)} > {limit:g} and {miss(burn.long)} > {limit:g} {enough})"


def _blamed(burning: str, blame: str) -> str:
    """What burns, labelled with the phase of the greatest share; without one where none is known.

    The second half keeps an alert from staying silent for want of somebody to blame.
    """
    worst = f"topk by ({q.MODEL}) (1, {blame})"
    joined = f"{burning} * on ({q.MODEL}) group_right () ({worst} >= bool 0)"
    return f"{joined} or ({burning} unless on ({q.MODEL}) {blame})"


def _ttft(burn: knobs.Burn) -> Alert:
    every = q.select(s.TTFT_OR_END, part="count")
    burning = _burning(rules.ttft_miss, knobs.TTFT_OBJECTIVE, burn, every)
    return Alert(
        "LlmTraceTtftBurn",
        burn.severity,
        _blamed(burning, rules.ttft_blame(burn.long)),
        f"First tokens of {MODEL} are late, mostly because of {PHASE}.",
        f"{SHARE} of the streamed requests of {MODEL} waited longer than {knobs.TTFT_SECONDS:g} s "
        f"for a first token in the last {burn.short}; the objective allows "
        f"{TTFT_BUDGET}. What they waited for most in the last {burn.long}: "
        f"{PHASE}.",
    )


def _tpot(burn: knobs.Burn) -> Alert:
    every = q.select(s.TIME_PER_OUTPUT_TOKEN, part="count")
    return Alert(
        "LlmTraceTimePerOutputTokenBurn",
        burn.severity,
        _burning(rules.tpot_miss, knobs.TPOT_OBJECTIVE, burn, every),
        f"Tokens of {MODEL} come slowly after the first.",
        f"{SHARE} of the answers of {MODEL} took longer than {knobs.TPOT_SECONDS:g} s per output "
        f"token in the last {burn.short}; the objective allows {TPOT_BUDGET}.",
        labels={q.PHASE: s.DECODE},
    )


def _availability(burn: knobs.Burn) -> Alert:
    objective, every = knobs.AVAILABILITY_OBJECTIVE, q.select(s.REQUESTS)
    burning = _burning(rules.availability_miss, objective, burn, every)
    return Alert(
        "LlmTraceAvailabilityBurn",
        burn.severity,
        _blamed(burning, rules.availability_blame(burn.long)),
        f"Requests for {MODEL} fail, mostly in {PHASE}.",
        f"{SHARE} of the requests for {MODEL} ended in {', '.join(knobs.BAD_OUTCOMES)} in the last "
        f"{burn.short}; the objective allows {AVAILABILITY_BUDGET}. Where most of "
        f"them died in the last {burn.long}: {PHASE}.",
    )


ALERTS: Final = tuple(make(burn) for make in (_ttft, _tpot, _availability) for burn in knobs.BURNS)
