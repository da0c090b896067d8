"""How rules tell numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from llm_trace.diagnosis.case import Case

WRONG_INPUTS: Final = (
    "which is under 1: the settings `device` and `model_config` do not describe this engine"
)
"""Said of a time over its floor that cannot be."""

_SECOND: Final = 1e9


def ms(ns: float) -> str:
    """A time in ns as text, in ms or s."""
    return f"{ns / 1e6:.1f} ms" if ns < _SECOND else f"{ns / _SECOND:.2f} s"


def took(what: str) -> Callable[[Case], str]:
    """The reason that needs no fact but the phase's own time."""

    def reason(case: Case) -> str:
        return f"{what} took {ms(case.time)}, {case.share:.0%} of {ms(case.waited)}"

    return reason
