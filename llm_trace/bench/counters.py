"""The server's own counters, read from its Prometheus page before and after a cell.

They say what the client cannot know: how many prompt tokens were looked up in the prefix cache and
found, how many requests the server finished meanwhile, and where their time went.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from llm_trace import semconv as s

_VLLM_PHASES: Final = {
    s.QUEUE_WAIT: "vllm:request_queue_time_seconds_sum",
    s.PREFILL: "vllm:request_prefill_time_seconds_sum",
}


class Family(NamedTuple):
    """The counters of one program, by what they count."""

    program: str
    looked_up: str
    hits: str
    requests: str


FAMILIES: Final = (
    Family(
        "vllm",
        "vllm:prefix_cache_queries_total",
        "vllm:prefix_cache_hits_total",
        "vllm:request_queue_time_seconds_count",
    ),
    Family("llm_trace", s.USAGE_INPUT.prometheus, s.USAGE_CACHED.prometheus, s.REQUESTS.prometheus),
)
"""In the order in which they are believed: the engine's own first."""


@dataclass(frozen=True, slots=True)
class Counters:
    """One page, or the difference of two."""

    totals: Mapping[str, float] = field(default_factory=dict)
    """Sums over all labels of what `FAMILIES` and the phases name."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds of TTFT by phase, as llm_trace counts them."""

    def since(self, before: Counters) -> Counters:
        """What was counted between; a counter that fell back was started anew and is left out."""
        return Counters(_grown(before.totals, self.totals), _grown(before.phases, self.phases))

    @property
    def hits(self) -> tuple[str, float, float] | None:
        """Program, tokens looked up, tokens found; None where no program counts them."""
        for family in FAMILIES:
            looked_up = self.totals.get(family.looked_up)
            if looked_up:
                return family.program, looked_up, self.totals.get(family.hits, 0.0)
        return None

    @property
    def requests(self) -> float | None:
        """Requests that the server finished."""
        known = [self.totals[f.requests] for f in FAMILIES if f.requests in self.totals]
        return max(known) if known else None

    @property
    def mean_phases(self) -> tuple[str, dict[str, float]] | None:
        """Program, and mean seconds of TTFT a request in each phase."""
        streams = self.totals.get(s.TTFT_REQUESTS.prometheus)
        if streams:
            return "llm_trace", {name: took / streams for name, took in self.phases.items() if took}
        count = self.totals.get(FAMILIES[0].requests)
        if count:
            sums = {phase: self.totals.get(name) for phase, name in _VLLM_PHASES.items()}
            return "vllm", {phase: took / count for phase, took in sums.items() if took is not None}
        return None


_NAMES: Final = frozenset(
    {name for family in FAMILIES for name in family[1:]}
    | set(_VLLM_PHASES.values())
    | {s.TTFT_REQUESTS.prometheus}
)


def parse(page: str) -> Counters | None:
    """The counters of a page; None where it is no Prometheus page, or has none of them."""
    totals: dict[str, float] = {}
    phases: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                if sample.name in _NAMES:
                    _add(totals, sample.name, sample.value)
                elif sample.name == s.TTFT_PHASE.prometheus:
                    _add(phases, sample.labels.get(s.PHASE.replace(".", "_"), ""), sample.value)
    except (ValueError, KeyError, IndexError):
        return None
    return Counters(totals, phases) if totals else None


def _add(sums: dict[str, float], key: str, value: float) -> None:
    if math.isfinite(value):
        sums[key] = sums.get(key, 0.0) + value


def _grown(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    grown = {key: value - before.get(key, 0.0) for key, value in after.items()}
    return {key: value for key, value in grown.items() if value >= 0}


def served_before(counters: Counters | None) -> bool | None:
    """Whether the server had worked before; None where it does not say."""
    totals = {} if counters is None else counters.totals
    looked_up = [totals[f.looked_up] for f in FAMILIES if f.looked_up in totals]
    return any(looked_up) if looked_up else None
