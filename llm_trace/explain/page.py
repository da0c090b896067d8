"""A told request as text within 80 columns, and as plain data."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from llm_trace import semconv as s
from llm_trace.console import WIDTH, bar, cut, printable
from llm_trace.explain import definitions
from llm_trace.explain.definitions import Definition
from llm_trace.explain.judged import Judged
from llm_trace.explain.story import Story
from llm_trace.traces.spans import Span, tree

SCHEMA: Final = "llm-trace.explain/1"
_SHOWN: Final = 60
"""Rows of a waterfall."""
_NAME: Final = 30
_BAR: Final = 26


def document(story: Story, verdict: Judged | None) -> dict[str, Any]:
    """One request as plain data; times in seconds."""
    root = story.root
    return {
        "trace_id": root.trace_id,
        "span_id": root.span_id,
        "name": root.name,
        "service": root.service,
        "told_by": story.told_by,
        "duration": root.duration / 1e9,
        "outcome": root.text(s.OUTCOME),
        "start_state": root.text(s.START_STATE),
        "ttft": None if story.ttft is None else story.ttft / 1e9,
        "ttft_phases": {phase: ns / 1e9 for phase, ns in story.ttft_phases.items()},
        "phases": {phase: ns / 1e9 for phase, ns in story.phases.items()},
        "tokens": {
            "input": story.input_tokens,
            "output": story.output_tokens,
            "cached": story.cached_tokens,
        },
        "verdict": asdict(verdict) if verdict is not None else None,
        "definitions": {
            "ttft": [_defined(row, story) for row in definitions.TTFT],
            "time_per_output_token": [_defined(row, story) for row in definitions.TPOT],
        },
        "spans": [_plain(depth, span, root) for depth, span in tree(story.spans)],
        "notes": list(story.notes),
    }


def _defined(row: Definition, story: Story) -> dict[str, Any]:
    value = row.value(story)
    return {
        "tool": row.tool,
        "measures": row.measures,
        "seconds": None if value is None else value / 1e9,
        "on_top": row.on_top,
    }


def _plain(depth: int, span: Span, root: Span) -> dict[str, Any]:
    return {
        "depth": depth,
        "name": span.name,
        "service": span.service,
        "start": (span.start - root.start) / 1e9,
        "duration": span.duration / 1e9,
    }


def render(story: Story, verdict: Judged | None) -> Iterator[str]:
    """The lines of one request."""
    yield from _head(story)
    yield ""
    yield from _waterfall(story)
    yield ""
    yield from _ledger(story)
    yield ""
    yield from _verdict(verdict)
    yield ""
    yield from _defined_lines("time to first token", definitions.TTFT, story)
    yield ""
    yield from _defined_lines("time per output token", definitions.TPOT, story)
    yield "  * as far as the server sees it: the tool's own number has the network on top"
    for note in story.notes:
        yield ""
        yield from _wrapped(f"Note: {note}.")


def _head(story: Story) -> Iterator[str]:
    root = story.root
    ttft = "no first token" if story.ttft is None else f"first token after {_ms(story.ttft)}"
    where = root.service or "an unnamed service"
    yield cut(f"{root.name} at {where}: {ttft}, {_ms(root.duration)} in all")
    facts = [f"trace {root.trace_id}", f"told by {story.told_by}"]
    facts += [x for x in (root.text(s.OUTCOME), root.text(s.START_STATE)) if x]
    yield cut("  " + ", ".join(facts))
    tokens = [
        f"{number} {what}"
        for number, what in (
            (story.input_tokens, "prompt tokens"),
            (story.cached_tokens, "of them cached"),
            (story.output_tokens, "generated"),
        )
        if number is not None
    ]
    if tokens:
        yield cut("  " + ", ".join(tokens))


def _waterfall(story: Story) -> Iterator[str]:
    rows = list(tree(story.spans))
    start = min(span.start for _, span in rows)
    end = max(span.end for _, span in rows)
    yield f"{'span':<{_NAME}}{'start ms':>11}{'took ms':>11}"
    for depth, span in rows[:_SHOWN]:
        name = cut("  " * min(depth, 8) + span.name, _NAME - 1)
        numbers = f"{(span.start - start) / 1e6:>11.1f}{span.duration / 1e6:>11.1f}"
        drawing = bar(span.start - start, span.duration, (end - start) or 1, _BAR)
        yield f"{name:<{_NAME}}{numbers}  {drawing}".rstrip()[:WIDTH]
    if len(rows) > _SHOWN:
        yield f"… and {len(rows) - _SHOWN} more spans"


def _ledger(story: Story) -> Iterator[str]:
    yield f"{'ledger':<{_NAME}}{'to first token':>16}{'of it':>8}{'whole request':>16}"
    known = [x for x in s.PHASES if x in story.phases or x in story.ttft_phases]
    named = sorted({*story.phases, *story.ttft_phases} - set(known))
    for phase in [*known, *named]:
        early = story.ttft_phases.get(phase)
        share = f"{early / story.ttft:.0%}" if early is not None and story.ttft else ""
        yield (
            f"  {cut(phase, _NAME - 3):<{_NAME - 2}}{_cell(early):>16}{share:>8}"
            f"{_cell(story.phases.get(phase)):>16}"
        ).rstrip()
    total = sum(story.ttft_phases.values()) if story.ttft is not None else None
    yield (
        f"  {'sum':<{_NAME - 2}}{_cell(total):>16}{'':>8}{_cell(sum(story.phases.values())):>16}"
    )


def _verdict(verdict: Judged | None) -> Iterator[str]:
    if verdict is None:
        yield "verdict: none; it was rejected before it waited for anything"
        return
    made = "recorded with the request" if verdict.recorded else "found from its spans"
    yield cut(f"verdict: {verdict.cause} (confidence {verdict.confidence}; {made})")
    yield from _wrapped(_sentence(verdict.reason))
    yield from _wrapped(verdict.next_check)
    for value, what in (
        (verdict.ttft_if_halved, "that phase taken half as long"),
        (verdict.ttft_if_prefill_halved, "prefill been twice as fast"),
    ):
        if value is not None:
            yield cut(f"  had {what}, the first token had come after {value * 1e3:,.1f} ms")
    ratios = (verdict.prefill_ratio, "prefill"), (verdict.decode_ratio, "decode")
    for ratio, what in ratios:
        if ratio is not None:
            yield cut(f"  {what} took {ratio:.1f} times its estimated floor")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "." if text else ""


def _defined_lines(title: str, rows: Sequence[Definition], story: Story) -> Iterator[str]:
    yield title
    for row in rows:
        value = row.value(story)
        shown = "-" if value is None else f"{value / 1e6:,.1f} ms"
        mark = "*" if row.on_top else " "
        yield f"  {row.tool:<17}{shown:>13}{mark} {row.measures}"


def _cell(ns: int | None) -> str:
    return "" if ns is None else f"{ns / 1e6:,.1f} ms"


def _ms(ns: int) -> str:
    return f"{ns / 1e6:,.1f} ms"


def _wrapped(text: str) -> Iterator[str]:
    yield from textwrap.wrap(printable(text), WIDTH, initial_indent="  ", subsequent_indent="  ")
