"""The comparison of two sides: each phase, the whole, and what else was different."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from llm_trace import semconv as s
from llm_trace.diff.blocks import Data
from llm_trace.diff.significance import Change, change, holm, mean, quantile, shape

SIGNIFICANT: Final = 0.05

Word = Literal["moved", "reshaped", "noise", "unknown"]


@dataclass(frozen=True, slots=True)
class PhaseDiff:
    """One phase's part of the mean TTFT on both sides; seconds."""

    phase: str
    a: float
    b: float
    change: Change
    p: float | None
    """The change's probability, corrected for the number of phases."""
    shape_p: float | None
    """That of the buckets of the phase's durations, corrected likewise."""

    @property
    def word(self) -> Word:
        """`moved` (its mean), `reshaped` (its buckets alone), `noise`, or `unknown`."""
        if self.p is None:
            return "unknown"
        if self.p < SIGNIFICANT:
            return "moved"
        return "reshaped" if (self.shape_p or 1.0) < SIGNIFICANT else "noise"


@dataclass(frozen=True, slots=True)
class Whole:
    """The time to first token on both sides; seconds."""

    a: float
    b: float
    change: Change
    quantiles: Mapping[str, tuple[float | None, float | None]]

    @property
    def word(self) -> Word:
        """As of a phase."""
        if self.change.p is None:
            return "unknown"
        return "moved" if self.change.p < SIGNIFICANT else "noise"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two sides, compared."""

    a: Data
    b: Data
    ttft: Whole
    phases: tuple[PhaseDiff, ...]
    """In the order of the ledger; the means of each side add up to its TTFT."""
    others: Mapping[str, tuple[float | None, float | None]]
    """What may explain a change without being one of the server: A and B."""

    @property
    def slower(self) -> bool:
        """Whether the time to first token grew by more than noise."""
        return self.ttft.word == "moved" and self.ttft.change.value > 0


def compare(a: Data, b: Data) -> Comparison:
    """Compare two sides that both have first tokens."""
    known = {*a.seconds, *b.seconds}
    names = [*(name for name in s.PHASES if name in known), *sorted(known.difference(s.PHASES))]
    changes = {name: _change(name, a, b) for name in names}
    moved = holm({name: one.p for name, one in changes.items()})
    shaped = holm({name: shape(a.shapes.get(name, {}), b.shapes.get(name, {})) for name in names})
    phases = (
        PhaseDiff(name, *_means(name, a, b), changes[name], moved[name], shaped[name])
        for name in names
    )
    others = {name: (value(a), value(b)) for name, value in OTHERS.items()}
    return Comparison(a, b, _whole(a, b), tuple(phases), others)


def _blocks(name: str, data: Data) -> list[float]:
    return list(data.seconds.get(name, [0.0] * len(data.requests)))


def _means(name: str, a: Data, b: Data) -> tuple[float, float]:
    return sum(_blocks(name, a)) / a.count, sum(_blocks(name, b)) / b.count


def _change(name: str, a: Data, b: Data) -> Change:
    one, other = (mean(_blocks(name, data), data.requests) for data in (a, b))
    return Change(0.0) if one is None or other is None else change(one, other)


def _whole(a: Data, b: Data) -> Whole:
    sides = []
    for data in (a, b):
        per_block = [sum(blocks) for blocks in zip(*data.seconds.values(), strict=True)]
        sides.append(mean(per_block or [0.0] * len(data.requests), data.requests))
    one, other = sides
    if one is None or other is None:
        raise ValueError("a side has no first tokens")
    return Whole(
        one.value,
        other.value,
        change(one, other),
        {f"p{q * 100:g}": (quantile(q, a.ttft), quantile(q, b.ttft)) for q in (0.5, 0.95, 0.99)},
    )


# --- what else was different ------------------------------------------------------------------


def _per_request(name: str) -> Callable[[Data], float | None]:
    return lambda data: _ratio(data.tokens[name], sum(data.outcomes.values()))


def _outcome(name: str) -> Callable[[Data], float | None]:
    return lambda data: _ratio(data.outcomes.get(name, 0.0), sum(data.outcomes.values()))


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


OTHERS: Final[Mapping[str, Callable[[Data], float | None]]] = {
    "requests_per_second": lambda data: sum(data.outcomes.values()) / data.side.seconds,
    "prompt_tokens": _per_request("input"),
    "cached_share": lambda data: _ratio(data.tokens["cached"], data.tokens["input"]),
    "cold_share": lambda data: _ratio(data.starts.get("cold", 0.0), sum(data.starts.values())),
    "error_share": _outcome("error"),
    "rejected_share": _outcome("rejected"),
    "cancelled_share": _outcome("cancelled"),
}
