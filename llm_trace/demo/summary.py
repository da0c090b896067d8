"""The numbers of one class of request: medians to compare, means that add up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING

from llm_trace import semconv
from llm_trace.demo.joined import Joined, Line, lines
from llm_trace.demo.load import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


@dataclass(frozen=True, slots=True)
class Summary:
    """One class; seconds."""

    kind: str
    count: int
    ttft_median: float
    ttft_p95: float
    ttft_mean: float
    part_medians: dict[Line, float]
    part_means: dict[Line, float]
    sum_median: float
    difference_median: float
    difference_largest: float
    """By size, with its sign."""
    prompt_tokens: float | None
    """Median; None when the engine said nothing."""
    cached_tokens: float | None

    @property
    def dominant(self) -> Line:
        """Where most of the time went."""
        return max(self.part_means, key=lambda line: self.part_means[line])

    def share(self, line: Line) -> float:
        """Return the part's share of what the client waited, over all requests of the class."""
        return self.part_means.get(line, 0.0) / self.ttft_mean


def summarise(joined: Iterable[Joined]) -> list[Summary]:
    """Summarise each class that has requests, in the order of the classes."""
    groups: dict[str, list[Joined]] = {kind: [] for kind in KINDS}
    for one in joined:
        groups.setdefault(one.answer.kind, []).append(one)
    return [_summary(kind, group) for kind, group in groups.items() if group]


def _summary(kind: str, group: Sequence[Joined]) -> Summary:
    waits = [one.answer.ttft or 0.0 for one in group]
    differences = [one.difference for one in group]
    return Summary(
        kind=kind,
        count=len(group),
        ttft_median=median(waits),
        ttft_p95=quantile(waits, 0.95),
        ttft_mean=fmean(waits),
        part_medians=_each_part(group, median),
        part_means=_each_part(group, fmean),
        sum_median=median(one.total for one in group),
        difference_median=median(differences),
        difference_largest=max(differences, key=abs),
        prompt_tokens=_tokens(group, semconv.USAGE_INPUT_TOKENS),
        cached_tokens=_tokens(group, semconv.USAGE_CACHED_TOKENS),
    )


def _each_part(
    group: Sequence[Joined], middle: Callable[[Sequence[float]], float]
) -> dict[Line, float]:
    """Take the middle of every part; a request without the part spent no time in it."""
    return {line: middle([one.parts.get(line, 0.0) for one in group]) for line in lines(group)}


def _tokens(group: Sequence[Joined], attribute: str) -> float | None:
    said = [float(one.engine[attribute]) for one in group if attribute in one.engine]
    return median(said) if said else None


def quantile(values: Sequence[float], share: float) -> float:
    """Return the nearest-rank quantile: a value that was measured, not one between two."""
    rank = max(1, math.ceil(share * len(values)))
    return sorted(values)[rank - 1]
