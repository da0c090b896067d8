"""The report: one HTML file with its plots inside, which asks nothing of any network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from typing import Final

from llm_trace._version import __version__
from llm_trace.bench.chart import Bar, Point, Series, bars, lines
from llm_trace.bench.fit import Fit
from llm_trace.bench.gates import Check
from llm_trace.bench.plan import PREFIXES
from llm_trace.bench.results import CellResult, Results
from llm_trace.bench.screen import interval, place, plain, prefill_text, statistic
from llm_trace.bench.screen import render as screen
from llm_trace.bench.stats import Stats
from llm_trace.bench.target import Target
from llm_trace.console import Style

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --dim: #59636e; --rule: #d8dee4;
  --c0: #1f6feb; --c1: #bc4c00; --c2: #1a7f37; --c3: #8250df; --c4: #bf3989; --c5: #9a6700;
  --c6: #0b7285; --c7: #59636e; --bad: #b42318; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --paper: #0d1117; --dim: #9198a1;
  --rule: #30363d; --c0: #58a6ff; --c1: #f0883e; --c2: #3fb950; --c3: #bc8cff; --c4: #f778ba;
  --c5: #d29922; --c6: #39c5cf; --c7: #9198a1; --bad: #ff7b72; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
svg { width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: var(--dim); }
.grid { stroke: var(--rule); fill: none; } .line { fill: none; stroke-width: 2; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; padding: 0; }
.legend span { display: inline-block; width: .8em; height: .8em; margin-right: .4em; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .2rem .6rem; border-bottom: 1px solid var(--rule); }
th:first-child, td:first-child { text-align: left; } .bad { color: var(--bad); font-weight: 600; }
pre { overflow-x: auto; padding: 1rem; border: 1px solid var(--rule); }
"""

_HEADS: Final = (
    *("cell", "ok", "failed", "cancelled", "median", "95 % interval", "p90", "p95", "p99", "most"),
    *("per token", "requests/s", "tokens/s", "good", "prefix"),
)


_READING: Final = (
    "Vertical strokes are 95 % intervals of the median, short horizontal ones the 95th percentile; "
    "both are absent with too few requests."
)


def render(results: Results, target: Target, checks: Sequence[Check]) -> str:
    """The whole page."""
    title = f"Time to first token of {target.model}"
    parts = [
        f"<h1>{escape(title)}</h1><p>{escape(target.url)}</p>",
        *_warnings(results, checks),
        *_by_length(results),
        *_by_concurrency(results),
        *_by_phase(results),
        _table(results),
        "<h2>As on the screen</h2><pre>",
        escape("\n".join(screen(results, target, checks, Style()))),
        f"</pre><p>llm-trace {__version__}. {_READING}</p>",
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


def _warnings(results: Results, checks: Sequence[Check]) -> Iterator[str]:
    if results.stopped:
        yield f'<p class="bad">Not complete: {escape(results.stopped)}.</p>'
    for check in checks:
        if check.failed:
            yield f'<p class="bad">Failed: {escape(check.rule)}</p>'


# --- plots ----------------------------------------------------------------------------------------


def _by_length(results: Results) -> Iterator[str]:
    fit = results.prefill
    for concurrency, group in groupby(results.cells, key=lambda one: one.cell.concurrency):
        cells = list(group)
        fitted = fit if concurrency == min(results.plan.concurrencies) else None
        series = [Series(prefix, _points(cells, prefix)) for prefix in PREFIXES]
        title = f"By prompt length, {concurrency} at once"
        about = "; ".join(f"{place(one)}: {statistic(one.ttft, 'median')} ms" for one in cells)
        yield f"<h2>{escape(title)}</h2>"
        axes = ("prompt tokens", "time to first token, ms")
        yield lines(title, about, axes, [*series, *([_line(fitted)] if fitted else [])])
        if fitted is not None:
            yield f"<p>{escape(prefill_text(fitted))}</p>"


def _points(cells: Sequence[CellResult], prefix: str) -> list[Point]:
    known = [(one, one.ttft) for one in cells if one.cell.prefix == prefix and one.ttft]
    return [_point(one.tokens or one.cell.length, ttft) for one, ttft in known]


def _point(x: float, ttft: Stats) -> Point:
    return Point(x, *(_times(value) for value in (ttft.median, ttft.low, ttft.high, ttft.p95)))  # type: ignore[arg-type]


def _times(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _line(fit: Fit) -> Series:
    ends, line = (fit.least_tokens, fit.most_tokens), fit.resistant
    points = [Point(x, max(0.0, (line.start + line.slope * x) * 1e3)) for x in ends]
    return Series("new, by the median of slopes", points, dashed=True)


def _by_concurrency(results: Results) -> Iterator[str]:
    if len(results.plan.concurrencies) < 2:  # noqa: PLR2004 - a line needs two
        return
    for prefix in PREFIXES:
        title = f"Throughput, {prefix} prefixes"
        series = [Series(f"{n} tokens", _rates(results, n, prefix)) for n in results.plan.lengths]
        about = "; ".join(
            f"{one.name}: " + ", ".join(f"{p.y:.0f} at {p.x:.0f}" for p in one.points)
            for one in series
        )
        yield f"<h2>{escape(title)}</h2>"
        yield lines(title, about, ("requests in flight", "output tokens/s"), series)


def _rates(results: Results, length: int, prefix: str) -> list[Point]:
    return [
        Point(one.cell.concurrency, one.rates.output_tokens)
        for one in results.cells
        if one.cell[1:] == (length, prefix) and one.rates.output_tokens is not None
    ]


def _by_phase(results: Results) -> Iterator[str]:
    known = [(one, one.phases) for one in results.cells if one.phases is not None]
    if not known:
        return
    names = list(dict.fromkeys(name for _, phases in known for name in phases.mean))
    rows = [Bar(place(one), [p.mean.get(name, 0) * 1e3 for name in names]) for one, p in known]
    sources = ", ".join(dict.fromkeys(phases.source for _, phases in known))
    title = f"Where it went, by {sources}"
    about = "; ".join(
        f"{row.name}: "
        + ", ".join(f"{n} {v:.1f} ms" for n, v in zip(names, row.parts, strict=True))
        for row in rows
    )
    yield f"<h2>{escape(title)}</h2>"
    yield bars(title, about, "mean milliseconds", names, rows)


# --- the table ------------------------------------------------------------------------------------


def _table(results: Results) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in _HEADS)
    rows = "".join(_row(one) for one in results.cells)
    return (
        "<h2>Every cell</h2><p>Times in milliseconds.</p>"
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _row(one: CellResult) -> str:
    ttft = one.ttft
    share = "" if one.reuse.share is None else f", {one.reuse.share:.0%} cached"
    evidence = f", by {one.reuse.evidence}" if one.reuse.evidence else ""
    cells = (
        *(str(number) for number in (one.ok, one.failed, one.cancelled)),
        *(statistic(ttft, "median"), interval(ttft, "–")),
        *(statistic(ttft, name) for name in ("p90", "p95", "p99", "most")),
        *(
            statistic(one.tpot, "median"),
            f"{one.rates.requests:.2f}",
            plain(one.rates.output_tokens),
        ),
        "-" if one.good is None else f"{one.good:.0%}",
        f"{one.reuse.verdict}{share}{evidence}",
    )
    bad = ' class="bad"' if one.failed or one.reuse.verdict == "refuted" else ""
    return (
        f'<tr{bad}><th scope="row">{escape(place(one))}</th>'
        + "".join(f"<td>{escape(text)}</td>" for text in cells)
        + "</tr>"
    )
