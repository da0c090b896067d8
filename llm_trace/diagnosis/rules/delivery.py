"""Tokens that were made and not handed over: held by the client, or late by themselves."""

from __future__ import annotations

from typing import Final

from llm_trace.diagnosis.case import Case
from llm_trace.diagnosis.rules.limits import HALF, LOST
from llm_trace.diagnosis.rules.rule import Rule, always
from llm_trace.diagnosis.rules.wording import ms, took


def _held(case: Case) -> bool:
    return case.record.send_wait >= HALF * case.time > 0


def _held_in_decode(case: Case) -> bool:
    return case.held >= LOST * case.time > 0


def _tail(case: Case) -> bool:
    return case.late_tail >= HALF * case.time > 0


HELD: Final = Rule(
    "back_pressure",
    _held,
    lambda c: f"`send` held the answer for {ms(c.record.send_wait)} of {ms(c.time)}",
    "The client or a proxy reads more slowly than tokens are made: look at its network and at the "
    "proxy's buffers.",
)
HELD_IN_DECODE: Final = HELD._replace(
    holds=_held_in_decode,
    reason=lambda c: f"`send` held the answer for {ms(c.held)} of {ms(c.time)}",
)
LATE_TAIL: Final = Rule(
    "delivery",
    _tail,
    lambda c: f"the last token was sent {ms(c.late_tail)} after the engine made it",
    "Tokens were ready and not handed over: look at llm_trace_event_loop_lag_seconds and at what "
    "the app does with each chunk.",
    sure=False,
)
HANDED_OVER: Final = Rule(
    "delivery",
    always,
    took("handing the token to the client"),
    "Look at the event loop's lag, at detokenisation and at middlewares that buffer.",
    sure=False,
)
