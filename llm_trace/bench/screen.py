"""A run as a person reads it, within eighty columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from llm_trace.bench.fit import Fit
from llm_trace.bench.gates import Check
from llm_trace.bench.results import CellResult, Results
from llm_trace.bench.stats import Stats
from llm_trace.bench.target import Target
from llm_trace.bench.theil import Slope
from llm_trace.console import WIDTH, Style

_HEAD: Final = (
    f"{'prompt':>7} {'prefix':<7}{'median':>8}{'interval':>15}{'p95':>8}"
    f"{'token':>7}{'tokens/s':>10}  cached"
)
_STARTS: Final = {
    "cold": "the server had served nothing before: a cold start",
    "loaded": "the server had worked before, so this is no cold start",
    "unknown": "the server does not tell whether it was cold",
}
_RULERS: Final = {
    "exact": "Prompt lengths are exact, by the server's own tokenizer.",
    "calibrated": "Prompt lengths are calibrated from the server's usage.",
    "estimated": "Prompt lengths are ESTIMATED: the server counts no tokens.",
}


def render(
    results: Results, target: Target, checks: Sequence[Check], style: Style
) -> Iterator[str]:
    """Yield the whole report, line by line."""
    plan = results.plan
    yield from _wrapped(f"{target.model} at {target.url}")
    yield f"{plan.requests} requests a cell, {plan.max_tokens} tokens out of each"
    yield from _wrapped(_RULERS[results.ruler])
    if results.stopped:
        yield style(f"NOT COMPLETE: {results.stopped}.", "red", "bold")
    yield from _first(results)
    for concurrency, cells in groupby(results.cells, key=lambda one: one.cell.concurrency):
        yield from _table(concurrency, list(cells), style)
    yield from _faults(results, style)
    yield from _good(results, style)
    yield from _phases(results, style)
    if results.prefill is not None:
        yield from ("", style(f"{min(plan.concurrencies)} at once: prefill", "bold"))
        yield from _wrapped(prefill_text(results.prefill))
    yield from _checks(checks, style)


def _first(results: Results) -> Iterator[str]:
    first = results.first
    if first is None:
        return
    took = "no token" if first.ttft is None else f"{milliseconds(first.ttft)} ms"
    yield from ("", *_wrapped(f"first request  {took}: {_STARTS[results.start_state]}"))


def _table(concurrency: int, cells: Sequence[CellResult], style: Style) -> Iterator[str]:
    yield ""
    yield style(f"{concurrency} at once: time to first token, ms", "bold")
    yield style(_HEAD, "dim")
    for one in cells:
        line = _row(one)
        yield style(line, "yellow") if one.reuse.verdict == "refuted" else line


def _row(one: CellResult) -> str:
    ttft = one.ttft
    share = "" if one.reuse.share is None else f"{one.reuse.share:.0%} "
    cells = (
        _named(one),
        f"{statistic(ttft, 'median'):>8}{interval(ttft):>15}{statistic(ttft, 'p95'):>8}",
        f"{statistic(one.tpot, 'median'):>7}{plain(one.rates.output_tokens):>10}",
        f"  {share}{_WORDS[one.reuse.verdict]}",
    )
    return "".join(cells)


_WORDS: Final = {"confirmed": "confirmed", "refuted": "REFUTED", "unconfirmed": "unconfirmed"}


def _named(one: CellResult) -> str:
    return f"{one.cell.length:>7} {one.cell.prefix:<7}"


def _faults(results: Results, style: Style) -> Iterator[str]:
    for one in results.cells:
        if one.failed or one.cancelled:
            why = ", ".join(f"{number} {reason}" for reason, number in one.reasons.items())
            text = f"{place(one)}: {one.failed} failed, {one.cancelled} cancelled ({why})"
            yield from (style(line, "red") for line in _wrapped(text))
    notes = {one.reuse.note for one in results.cells if one.reuse.note}
    yield from (line for note in sorted(notes) for line in _wrapped(f"unconfirmed: {note}"))


def _good(results: Results, style: Style) -> Iterator[str]:
    """Goodput: the share of requests within every objective, and how many a second that is."""
    objectives = results.plan.objectives.items()
    if not objectives:
        return
    said = ", ".join(f"{name} {milliseconds(limit)} ms" for name, limit in objectives)
    yield from ("", style(f"goodput, within {said}", "bold"))
    heads = "".join(f"{f'{n} at once':>16}" for n in results.plan.concurrencies)
    yield style(f"{'prompt':>7} {'prefix':<7}{heads}"[:WIDTH], "dim")
    rows = groupby(sorted(results.cells, key=_by_prompt), key=_by_prompt)
    for _, group in rows:
        cells = list(group)
        shown = (f"{one.good or 0:>6.0%}{one.rates.goodput or 0:>8.2f}/s" for one in cells)
        yield (_named(cells[0]) + "".join(shown))[:WIDTH]


def _by_prompt(one: CellResult) -> tuple[int, bool]:
    return one.cell.length, one.cell.prefix == "cached"


# --- where it went --------------------------------------------------------------------------------


def _phases(results: Results, style: Style) -> Iterator[str]:
    """A table for each concurrency; as many phases as fit, the largest first to stay."""
    known = [(one, one.phases) for one in results.cells if one.phases is not None]
    for concurrency, group in groupby(known, key=lambda pair: pair[0].cell.concurrency):
        cells = list(group)
        names = _fitting([phases.mean for _, phases in cells])
        source = cells[0][1].source
        yield ""
        yield style(f"{concurrency} at once: where it went, mean ms, by {source}", "bold")
        heads = "".join(f"{name:>{len(name) + 2}}" for name in names)
        yield style(f"{'prompt':>7} {'prefix':<7}{heads}".rstrip(), "dim")
        for one, phases in cells:
            yield _named(one) + "".join(_part(phases.mean, name) for name in names)


def _fitting(means: Sequence[Mapping[str, float]]) -> list[str]:
    """The phases that took time, in their order, without those that there is no room for."""
    totals: dict[str, float] = {}
    for mean in means:
        for name, took in mean.items():
            totals[name] = totals.get(name, 0.0) + took
    kept: list[str] = []
    room = WIDTH - _NAMED
    for name in sorted(totals, key=lambda name: -totals[name]):
        room -= len(name) + 2
        if room >= 0 and totals[name]:
            kept.append(name)
    return [name for name in totals if name in kept]


_NAMED: Final = 15


def _part(mean: Mapping[str, float], name: str) -> str:
    return f"{milliseconds(mean.get(name, 0.0)):>{len(name) + 2}}"


def _checks(checks: Sequence[Check], style: Style) -> Iterator[str]:
    if checks:
        yield ""
    for check in checks:
        value = "nothing was measured" if check.value is None else f"worst {check.value:.4g}"
        word = style("FAILED", "red", "bold") if check.failed else style("passed", "green")
        yield f"{word}  {check.rule}  ({value})"


def place(one: CellResult) -> str:
    """Name a cell in a few words."""
    cell = one.cell
    return f"{cell.length} {cell.prefix}, {cell.concurrency} at once"


def prefill_text(fit: Fit) -> str:
    """Say what the line is, in sentences."""
    text = (
        f"{_slope(fit)} after {milliseconds(fit.start)} ms, by least squares over {fit.samples} "
        f"requests of {fit.least_tokens:.0f} to {fit.most_tokens:.0f} tokens, R squared "
        f"{fit.explained:.3f}. {_slope(fit.resistant)}, by the median of slopes, which a few "
        "stalled requests do not move."
    )
    if fit.low <= 0:
        return f"{text} The first interval is not above 0: it does not show what a token costs."
    if fit.bend > _BENT:
        return f"{text} The line is not straight: one length is {fit.bend:.0%} off it."
    return text


_BENT: Final = 0.15


def _slope(fit: Fit | Slope) -> str:
    micros = (f"{value * 1e6:.2f}" for value in (fit.slope, fit.low, fit.high))
    return "{} us per uncached token (95 %: {} to {})".format(*micros)


def milliseconds(seconds: float) -> str:
    """Milliseconds, to a tenth where that says anything."""
    value = seconds * 1e3
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}"  # noqa: PLR2004 - four digits do


def statistic(stats: Stats | None, name: str) -> str:
    """One of the numbers that describe durations, in milliseconds; a dash where it is unknown."""
    value = None if stats is None else getattr(stats, name)
    return "-" if value is None else milliseconds(value)


def interval(stats: Stats | None, to: str = "-") -> str:
    """Where the true median lies, in milliseconds."""
    if stats is None or stats.low is None:
        return "-"
    return f"{statistic(stats, 'low')}{to}{statistic(stats, 'high')}"


def plain(value: float | None) -> str:
    """A number as a whole one; a dash where it is unknown."""
    return "-" if value is None else f"{value:,.0f}"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, break_long_words=True)
