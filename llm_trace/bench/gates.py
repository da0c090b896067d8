"""Thresholds for CI: `ttft_p95@prefix=new > 0.5s` fails the run where any cell is above it.

A threshold that nothing was measured for fails, too: silence is no success.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from llm_trace.bench.errors import BenchError
from llm_trace.bench.results import CellResult, Results

_UNITS: Final[Mapping[str, float]] = {"": 1, "s": 1, "ms": 1e-3, "us": 1e-6, "%": 1e-2}
_COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_RULE: Final = re.compile(
    r"\s*(?P<name>\w+)(?P<where>(?:@\w+=\w+)*)\s*(?P<compare>[<>]=?)\s*"
    r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>us|ms|s|%|)\s*"
)
_LATENCIES: Final = ("ttft", "tpot", "duration")
_QUANTILES: Final = {"mean": "mean", "median": "median", "p90": "p90", "p95": "p95", "p99": "p99"}

Value = Callable[[CellResult], "float | None"]


def _latency(kind: str, quantile: str) -> Value:
    def value(cell: CellResult) -> float | None:
        stats = getattr(cell, kind)
        return None if stats is None else getattr(stats, quantile)

    return value


def _share(part: Callable[[CellResult], int]) -> Value:
    return lambda cell: part(cell) / (cell.ok + cell.failed + cell.cancelled)


VALUES: Final[Mapping[str, Value]] = {
    **{f"{k}_{q}": _latency(k, name) for k in _LATENCIES for q, name in _QUANTILES.items()},
    "failed": _share(lambda cell: cell.failed),
    "cancelled": _share(lambda cell: cell.cancelled),
    "requests_per_second": lambda cell: cell.rates.requests,
    "output_tokens_per_second": lambda cell: cell.rates.output_tokens,
    "goodput": lambda cell: cell.good,
    "unconfirmed": lambda cell: float(cell.reuse.verdict != "confirmed"),
}
"""What a threshold may name, in each cell."""

OF_THE_RUN: Final[Mapping[str, Callable[[Results], float | None]]] = {
    "prefill_per_token": lambda results: results.prefill and results.prefill.resistant.slope,
}
"""What it may name of the whole run."""

_PLACES: Final[Mapping[str, Callable[[CellResult], str]]] = {
    "length": lambda cell: str(cell.cell.length),
    "concurrency": lambda cell: str(cell.cell.concurrency),
    "prefix": lambda cell: cell.cell.prefix,
}


class Gate(NamedTuple):
    """One threshold, as the user wrote it and taken apart."""

    text: str
    name: str
    where: tuple[tuple[str, str], ...]
    compare: str
    limit: float


class Check(NamedTuple):
    """What became of one threshold."""

    rule: str
    failed: bool
    value: float | None
    """The worst of the values; None where there was none."""


def parse(text: str) -> Gate:
    """Read a threshold.

    Raises:
        BenchError: It is none; the message says how one looks.
    """
    match = _RULE.fullmatch(text)
    if match is None:
        raise BenchError(
            f"--fail-if {text!r} is no threshold: use one such as 'ttft_p95@prefix=new > 500ms'."
        )
    name, limit = match["name"], float(match["number"]) * _UNITS[match["unit"]]
    known = (*VALUES, *OF_THE_RUN)
    if name not in known:
        raise BenchError(f"--fail-if {text!r}: {name} is unknown; known are {', '.join(known)}.")
    where = tuple(_pair(text, part) for part in match["where"].split("@")[1:])
    return Gate(text.strip(), name, where, match["compare"], limit)


def _pair(text: str, part: str) -> tuple[str, str]:
    place, _, value = part.partition("=")
    if place not in _PLACES:
        raise BenchError(
            f"--fail-if {text!r}: @{place} is unknown; known are {', '.join(_PLACES)}."
        )
    return place, value


def check(gates: Iterable[Gate], results: Results) -> list[Check]:
    """What became of each threshold."""
    return [_check(gate, _values(gate, results)) for gate in gates]


def _values(gate: Gate, results: Results) -> Sequence[float | None]:
    if gate.name in OF_THE_RUN:
        return [OF_THE_RUN[gate.name](results)]
    cells = [
        cell
        for cell in results.cells
        if all(_PLACES[place](cell) == value for place, value in gate.where)
    ]
    return [VALUES[gate.name](cell) for cell in cells]


def _check(gate: Gate, values: Sequence[float | None]) -> Check:
    known = [value for value in values if value is not None]
    if not known:
        return Check(gate.text, failed=True, value=None)
    worst = max(known) if gate.compare.startswith(">") else min(known)
    beyond = _COMPARE[gate.compare](worst, gate.limit)
    return Check(gate.text, failed=beyond or len(known) < len(values), value=worst)
