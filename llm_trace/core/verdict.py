"""What a request waited for, in one word of a closed set, with the numbers that say so.

Made by `llm_trace.diagnosis`; here because observers carry it and know no diagnosis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from llm_trace import semconv as s

if TYPE_CHECKING:
    from llm_trace.core.record import RequestRecord

Confidence = Literal["high", "medium", "low"]


class Ratios(NamedTuple):
    """Measured over the least possible; None where model, device or tokens are not known."""

    prefill: float | None = None
    decode: float | None = None


class Verdict(NamedTuple):
    """The dominant wait of one request; times in ns."""

    cause: str
    """One of `semconv.VERDICTS`."""
    confidence: Confidence
    tell: Callable[[], str]
    """Makes `reason`, for the few requests of which somebody reads it."""
    next_check: str
    """What to look at or to change next."""
    phase: str
    """The phase that the wait lies in."""
    cost: int
    """What the wait took."""
    waited: int
    """What it was part of: the time to the first token, or of the whole request."""
    ttft_if_halved: int | None = None
    """The time to the first token, had that phase taken half as long; None where it is none."""
    ttft_if_prefill_halved: int | None = None
    """The same, had prefill been twice as fast."""
    ratios: Ratios = Ratios()

    @property
    def reason(self) -> str:
        """The numbers that made it, as a sentence."""
        return self.tell()

    def attributes(self) -> Iterator[tuple[str, str | float | None]]:
        """What the root span says of it; times in seconds."""
        yield s.VERDICT, self.cause
        yield s.VERDICT_CONFIDENCE, self.confidence
        yield s.VERDICT_REASON, self.reason
        yield s.VERDICT_NEXT_CHECK, self.next_check
        yield s.VERDICT_TTFT_IF_HALVED, _seconds(self.ttft_if_halved)
        yield s.VERDICT_TTFT_IF_PREFILL_HALVED, _seconds(self.ttft_if_prefill_halved)
        yield s.VERDICT_PREFILL_RATIO, self.ratios.prefill
        yield s.VERDICT_DECODE_RATIO, self.ratios.decode


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e9


Judge = Callable[["RequestRecord"], Verdict | None]
"""Finds the verdict on a record; None for what is no generation, or waited for nothing."""
