"""What a comparison needs of one side: counters' growth, block by block."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from llm_trace import semconv as s
from llm_trace.diff.prometheus import Growth, Prometheus
from llm_trace.diff.side import Side

Blocks = list[float]
Buckets = Mapping[float, Blocks]
"""By upper bound: samples up to it, in each block."""

BOUND: Final = "le"


def label(attribute: str) -> str:
    """The Prometheus label of an attribute."""
    return attribute.replace(".", "_")


@dataclass(frozen=True, slots=True)
class Data:
    """One side."""

    side: Side
    requests: Blocks
    """First tokens."""
    seconds: Mapping[str, Blocks]
    """Of TTFT, by phase."""
    shapes: Mapping[str, Buckets]
    """Durations of each phase, by bucket."""
    ttft: Buckets
    outcomes: Mapping[str, float]
    """Finished requests."""
    tokens: Mapping[str, float]
    """Prompt tokens in all, and those of them that were cached."""
    starts: Mapping[str, float]
    """First tokens by start state."""

    @property
    def count(self) -> float:
        """First tokens in all."""
        return sum(self.requests)


def fetch(prometheus: Prometheus, side: Side, blocks: int) -> Data:
    """Everything of one side.

    Raises:
        DiffError: The server cannot be asked.
    """

    def growth(name: str, *by: str) -> Growth:
        return prometheus.growth(name, side, blocks, *by)

    phase = label(s.PHASE)
    requests = growth(s.TTFT_REQUESTS.prometheus).get((), [0.0] * blocks)
    seconds = growth(s.TTFT_PHASE.prometheus, phase)
    shapes = growth(f"{s.PHASE_DURATION.prometheus}_bucket", phase, BOUND)
    ttft = f"{s.TIME_TO_FIRST_TOKEN.prometheus}_bucket"
    counters = {"input": s.USAGE_INPUT.prometheus, "cached": s.USAGE_CACHED.prometheus}
    return Data(
        side,
        requests,
        {name: per_block for (name,), per_block in seconds.items()},
        _by_phase(shapes),
        _by_phase(growth(ttft, phase, BOUND)).get("", {}),
        _totals(growth(s.REQUESTS.prometheus, label(s.OUTCOME))),
        {name: sum(growth(metric).get((), ())) for name, metric in counters.items()},
        _totals(growth(f"{s.TIME_TO_FIRST_TOKEN.prometheus}_count", label(s.START_STATE))),
    )


def _by_phase(growth: Growth) -> dict[str, dict[float, Blocks]]:
    phases: dict[str, dict[float, Blocks]] = {}
    for (phase, bound), per_block in growth.items():
        with suppress(ValueError):  # a series of that name without bounds is somebody else's
            phases.setdefault(phase, {})[float(bound)] = per_block
    return phases


def _totals(growth: Growth) -> dict[str, float]:
    return {name: sum(per_block) for (name,), per_block in growth.items()}
