"""Whether a cell measured what it claims: that its prefixes were new, or came from the cache.

Only the server knows. It says so in each answer's usage or in its counters; where it says nothing
the cell is unconfirmed, and where it says otherwise the cell is refuted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from llm_trace.bench.plan import Prefix
from llm_trace.bench.sample import Sample
from llm_trace.bench.sweep import Measured

Verdict = Literal["confirmed", "refuted", "unconfirmed"]

NEW_MOST: Final = 0.2
"""Cached share of the prompts up to which they count as new: the chat template is always cached."""

CACHED_LEAST: Final = 0.5
"""From which they count as cached: engines keep whole blocks, and always compute the last one."""

_ALIEN: Final = 0.02
"""Share by which the tokens that the server looked up may differ from those that we sent."""


class Reuse(NamedTuple):
    """What is known of the prefix cache's part in one cell."""

    verdict: Verdict
    evidence: str | None
    """`usage` (each answer's own), `vllm` or `llm_trace` (counters); None without any."""
    share: float | None
    """Cached tokens of all prompt tokens."""
    note: str | None = None


def judge(measured: Measured, *, usage_tells: bool) -> Reuse:
    """Judge one cell.

    Args:
        measured: The cell.
        usage_tells: Whether the server puts cached tokens in usage; then an absent count is 0.
    """
    good = [sample for sample in measured.samples if sample.outcome == "ok"]
    if not good:
        return Reuse("unconfirmed", None, None, "no request was answered")
    sent = [sample.prompt_tokens for sample in good]
    if usage_tells and None not in sent:
        cached = sum(sample.cached_tokens or 0 for sample in good)
        return _verdict(measured.cell.prefix, "usage", cached / max(1, _known(sent)))
    return _by_counters(measured, sent)


def _by_counters(measured: Measured, sent: Sequence[int | None]) -> Reuse:
    hits = measured.counted.hits if measured.counted else None
    if hits is None:
        return Reuse("unconfirmed", None, None, "the server shows no hit counters")
    program, looked_up, found = hits
    ours = _known(sent)
    if len(sent) == len(measured.samples) and ours and abs(looked_up - ours) > _ALIEN * ours:
        note = f"the server looked up {looked_up:.0f} tokens and was sent {ours}: other traffic?"
        return Reuse("unconfirmed", program, None, note)
    return _verdict(measured.cell.prefix, program, found / looked_up)


def _known(counts: Sequence[int | None]) -> int:
    return sum(count or 0 for count in counts)


def _verdict(prefix: Prefix, evidence: str, share: float) -> Reuse:
    right = share <= NEW_MOST if prefix == "new" else share >= CACHED_LEAST
    return Reuse("confirmed" if right else "refuted", evidence, share)


def usage_tells(samples: Sequence[Sample]) -> bool:
    """Whether any answer gave a count of cached tokens."""
    return any(sample.cached_tokens is not None for sample in samples)
