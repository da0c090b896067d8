"""The table: a column for each class of request, a row for each stretch of its TTFT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from llm_trace.demo.engine import APP_SERVICE
from llm_trace.demo.joined import APP, BETWEEN, ENGINE, LINES, Line
from llm_trace.demo.load import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from llm_trace.console import Style
    from llm_trace.demo.summary import Summary

_LABEL: Final = 36
_CELL: Final = 11


def render(summaries: Sequence[Summary], service: str, style: Style) -> Iterator[str]:
    """Yield the table's lines."""
    yield style(_row("time to first token, milliseconds", [one.kind for one in summaries]), "bold")
    yield _row("requests", [str(one.count) for one in summaries])
    yield style(
        _times("client's own clock: median", summaries, lambda one: one.ttft_median), "cyan"
    )
    yield _times("client's own clock: 95th percentile", summaries, lambda one: one.ttft_p95)
    yield style("where it went, medians, and which process measured it:", "bold")
    yield from _parts(summaries, service, style)
    yield style(_times("sum of each request's parts: median", summaries, _sum), "cyan")
    yield _times("client minus sum: median", summaries, lambda one: one.difference_median)
    yield _times("client minus sum: largest", summaries, lambda one: one.difference_largest)
    yield _row("prompt tokens: median", [_count(one.prompt_tokens) for one in summaries])
    yield _row("of these, cached: median", [_count(one.cached_tokens) for one in summaries])


def legend(summaries: Sequence[Summary]) -> Iterator[str]:
    """Yield what the columns are, and how to read the sums."""
    for one in summaries:
        yield f"  {one.kind:<7} {KINDS.get(one.kind, '')}"
    yield "  network is what the app waited for the engine beyond the engine's own ledger."
    yield "  The parts of one request add up to its sum exactly; medians of parts need not."
    yield "  Client minus sum is what no server can see: loopback and the client's own event loop."


def names(service: str) -> dict[str, str]:
    """Name the sources of the parts."""
    return {APP: APP_SERVICE, BETWEEN: "between the two", ENGINE: service}


def _parts(summaries: Sequence[Summary], service: str, style: Style) -> Iterator[str]:
    shown = {line for one in summaries for line in one.part_medians}
    known = [line for line in LINES if line in shown]
    for line in [*known, *sorted(shown.difference(LINES))]:
        label = f"  {names(service)[line.source]:<18}{line.phase}"
        yield label.ljust(_LABEL) + "".join(_part(one, line, style) for one in summaries)


def _part(summary: Summary, line: Line, style: Style) -> str:
    cell = _milliseconds(summary.part_medians.get(line, 0.0)).rjust(_CELL)
    return style(cell, "yellow", "bold") if line == summary.dominant else cell


def _sum(summary: Summary) -> float:
    return summary.sum_median


def _times(label: str, summaries: Sequence[Summary], value: Callable[[Summary], float]) -> str:
    return _row(label, [_milliseconds(value(one)) for one in summaries])


def _row(label: str, cells: Sequence[str]) -> str:
    return label.ljust(_LABEL) + "".join(cell.rjust(_CELL) for cell in cells)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.1f}"


def _count(tokens: float | None) -> str:
    return "-" if tokens is None else f"{tokens:.0f}"
