"""What a run does, in which order, and how much of it at most: checked before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from llm_trace.bench.errors import BenchError

Prefix = Literal["new", "cached"]
PREFIXES: Final[tuple[Prefix, ...]] = ("new", "cached")

OBJECTIVES: Final = ("ttft", "tpot", "duration")
"""What a goodput objective may bound, in seconds."""


class Cell(NamedTuple):
    """One combination that is measured."""

    concurrency: int
    """Requests in flight: each worker asks again as soon as it is answered."""
    length: int
    """Prompt tokens that are aimed at."""
    prefix: Prefix


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The sweep and its bounds.

    Raises:
        BenchError: It would send more requests than allowed.
    """

    lengths: tuple[int, ...]
    concurrencies: tuple[int, ...]
    requests: int
    """Of each cell; never fewer than its concurrency."""
    max_tokens: int
    max_requests: int
    max_seconds: float
    timeout: float
    """Seconds after which the client gives one request up."""
    objectives: Mapping[str, float] = field(default_factory=dict)
    """Seconds by name of `OBJECTIVES`; none: no goodput."""

    def __post_init__(self) -> None:
        if self.total > self.max_requests:
            raise BenchError(
                f"the plan needs {self.total:,} requests and --max-requests allows "
                f"{self.max_requests:,}: ask for fewer --lengths, --concurrency or --requests, or "
                "allow more."
            )

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Every cell in order; a cached one follows the new one of its length."""
        return tuple(
            Cell(concurrency, length, prefix)
            for concurrency in self.concurrencies
            for length in self.lengths
            for prefix in PREFIXES
        )

    @property
    def total(self) -> int:
        """Requests in all: warm-up, those that fill the cache, and those that are measured.

        A server without a tokenizer is sent two more, of one token each.
        """
        measured = sum(self.size(cell) for cell in self.cells)
        filling = sum(cell.concurrency for cell in self.cells if cell.prefix == "cached")
        return 1 + len(self.lengths) + filling + measured

    def size(self, cell: Cell) -> int:
        """How many requests of `cell` are measured."""
        return max(self.requests, cell.concurrency)
