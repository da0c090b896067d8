"""The times between the tokens of one engine call, from the engine's own ticks.

A tick is a step of the engine that brought the call at least one token. Tokens that come in one
step, as with speculative decoding, share the time that it took: their number and sum stay those of
time per output token, whatever the engine merges.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

from llm_trace.core.record import ChunkGaps
from llm_trace.semconv import TOKEN_BUCKETS

BOUNDS_NS: Final = tuple(round(bound * 1e9) for bound in TOKEN_BUCKETS)
"""The buckets of every `ChunkGaps`, whoever counts them."""

STALLED: Final = 2
"""A token that took more than so many median gaps was stalled."""


class Ticks(NamedTuple):
    """Every tick of a call after its first token."""

    gaps: Sequence[int]
    """The time to each tick from the one before, ns."""
    several: Mapping[int, int]
    """How many tokens came, by index, where it was not one."""
    cause: Callable[[int], str | None]
    """Why the gap of an index may have been long; None where nobody knows."""


class TickSource(Protocol):
    """Who can tell the ticks of a call, at its end."""

    def read(self, last_token: int) -> Ticks | None:
        """The ticks up to the one at `last_token`; None where some are not known any more."""


class Rhythm(NamedTuple):
    """What the ticks of one call come to."""

    gaps: ChunkGaps
    """Times between tokens, counted into `TOKEN_BUCKETS`."""
    longest: int
    """The longest time between two ticks, ns."""
    stall: int
    """What the tokens took beyond a median gap for each, ns."""
    cause: str | None
    """What most of the time of stalled tokens went to; None where nobody knows."""


def rhythm_of(ticks: Ticks) -> Rhythm | None:
    """What `ticks` come to; None without any."""
    if not ticks.gaps:
        return None
    shares = sorted(_shares(ticks) if ticks.several else ticks.gaps)
    median = shares[len(shares) // 2]
    total = sum(ticks.gaps)
    return Rhythm(
        ChunkGaps(_counts(shares), total, shares[-1]),
        max(ticks.gaps),
        max(0, total - median * len(shares)),
        _cause(ticks, STALLED * median) if shares[-1] > STALLED * median else None,
    )


def _shares(ticks: Ticks) -> list[int]:
    """The time of each token: those of one step share what it took."""
    shares: list[int] = []
    for index, gap in enumerate(ticks.gaps):
        tokens = ticks.several.get(index, 1)
        shares += [gap // tokens] * tokens
    return shares


def _counts(shares: Sequence[int]) -> tuple[int, ...]:
    """How many of the sorted `shares` fall into each bucket, and above the last."""
    below = [0, *(bisect_right(shares, bound) for bound in BOUNDS_NS), len(shares)]
    return tuple(b - a for a, b in pairwise(below))


def _cause(ticks: Ticks, usual: int) -> str | None:
    lost: dict[str | None, int] = {}
    long = [index for index, gap in enumerate(ticks.gaps) if gap > usual]  # few of many
    for index in long:
        over = ticks.gaps[index] - usual * ticks.several.get(index, 1)
        if over > 0:
            cause = ticks.cause(index)
            lost[cause] = lost.get(cause, 0) + over
    return max(lost, key=lambda cause: lost[cause]) if lost else None
