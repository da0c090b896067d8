"""One rule: the fact that must hold, the verdict that it makes, and the words for both.

A rule whose numbers are absent does not hold, so what nobody measured is never blamed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from llm_trace.diagnosis.case import Case


class Rule(NamedTuple):
    """A verdict, the fact that makes it, and what to do about it."""

    cause: str
    holds: Callable[[Case], bool]
    reason: Callable[[Case], str]
    next_check: str
    sure: bool = True
    """The fact names this cause; not merely fits it."""


def always(_case: Case) -> bool:
    """Holds by the phase alone: for the last rule of each list."""
    return True
