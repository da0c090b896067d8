"""The results as a person reads them, within a hundred columns."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from llm_trace.console import Style
from llm_trace.demo import table, waterfall
from llm_trace.demo.advice import advise
from llm_trace.demo.load import total
from llm_trace.demo.metrics import fit
from llm_trace.demo.width import WIDTH

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from llm_trace.demo.results import Results

_FAILURES_SHOWN: Final = 3


def render(results: Results, style: Style) -> Iterator[str]:
    """Yield the whole report, line by line."""
    summaries = results.summaries
    yield from _head(results, style)
    yield from _faults(results, style)
    if not summaries:
        return
    yield ""
    yield from table.render(summaries, results.engine.service, style)
    yield ""
    yield from table.legend(summaries)
    if results.slowest:
        kind, ttft = results.slowest.answer.kind, results.slowest.answer.ttft or 0.0
        yield from _title(f"The slowest first token: {kind}, {ttft * 1e3:.0f} ms", results, style)
        yield from waterfall.render(results.slowest, style)
    yield from _title("Where to look next", results, style)
    for advice in advise(summaries):
        yield from _paragraph(advice)
    yield from _metrics(results, style)


def _head(results: Results, style: Style) -> Iterator[str]:
    engine, plan = results.engine, results.plan
    title = f"{total(plan)} requests through the RAG app to {engine.title}"
    yield from ("", style(f"{title}, up to {plan.concurrency} at once", "bold"))
    if engine.simulated:
        text = f"SIMULATED: {engine.why} The app, its retrieval, the telemetry and the sums are "
        text += "real; queue, prefill and decode are a model of an engine, not an engine."
        yield from (style(line, "yellow") for line in textwrap.wrap(text, WIDTH))


def _faults(results: Results, style: Style) -> Iterator[str]:
    failures = results.failures
    if failures:
        yield style(f"{len(failures)} requests FAILED, and are in no number below:", "red", "bold")
        for answer in failures[:_FAILURES_SHOWN]:
            yield from _paragraph(f"{answer.kind}: {answer.error}")
    if results.untraced:
        yield style(f"{results.untraced} good requests have no ledger from the app.", "red")
    if results.unsplit:
        yield style(f"{results.unsplit} requests have no ledger from the engine.", "red")
    if results.dropped:
        yield style(f"The receiver refused {results.dropped} bodies or spans.", "red")


def _title(text: str, results: Results, style: Style) -> Iterator[str]:
    mark = " (SIMULATED)" if results.engine.simulated else ""
    yield from ("", style(text + mark, "bold"))


def _metrics(results: Results, style: Style) -> Iterator[str]:
    for address, samples in results.metrics.items():
        yield from _title(f"{address} says", results, style)
        for sample in samples:
            yield from (f"  {line}" for line in fit(sample))


def _paragraph(text: str) -> Iterable[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  - ", subsequent_indent="    ")
