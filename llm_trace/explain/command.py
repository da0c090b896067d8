"""`llm-trace explain`: read, choose, tell."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from llm_trace.console import WIDTH, print_json, print_lines
from llm_trace.diagnosis.floors import Floors
from llm_trace.errors import LlmTraceError
from llm_trace.explain import page
from llm_trace.explain.judged import verdict_on
from llm_trace.explain.source import text_of
from llm_trace.explain.story import Story, tell
from llm_trace.traces.otlp import read
from llm_trace.traces.spans import Span, TraceError, traces, whole_id
from llm_trace.words import bearer

if TYPE_CHECKING:
    import argparse


def explain(args: argparse.Namespace) -> int:
    """Explain one request.

    Raises:
        LlmTraceError: The trace cannot be read, or there is no request in it.
    """
    floors = _floors(args)
    headers = {**dict(args.header), **bearer("--token-env", args.token_env)}
    found = read(text_of(args.trace, args.api, headers))
    told = _told(traces(found.spans), args.trace_id)
    notes = _notes(told, found.unreadable)
    if args.list:
        return _list(told, as_json=args.json)
    stories = max(told.values(), key=lambda each: each[0].ttft or -1)
    if args.json:
        told_as = [page.document(each, verdict_on(each, floors)) for each in stories]
        print_json({"schema": page.SCHEMA, "requests": told_as, "notes": notes})
        return 0
    for number, story in enumerate(stories):
        if number:
            print_lines(["", "-" * WIDTH])
        print_lines(page.render(story, verdict_on(story, floors)))
    for note in notes:
        sys.stderr.write(f"llm-trace: {note}\n")
    return 0


def _floors(args: argparse.Namespace) -> Floors | None:
    if args.device is None and args.model_config is None:
        return None
    if args.device is None or args.model_config is None:
        raise LlmTraceError("floors need both --device and --model-config.")
    from llm_trace.diagnosis.known import roofline_of  # noqa: PLC0415 - rarely asked for

    return Floors(roofline_of(args.device, args.model_config, args.tensor_parallel))


def _told(found: dict[str, list[Span]], wanted: str | None) -> dict[str, list[Story]]:
    """The requests by trace; a trace without one is left out where another has some."""
    if wanted is not None:
        trace_id = next((x for x in (wanted.lower(), whole_id(wanted)) if x in found), "")
        spans = found.get(trace_id)
        if spans is None:
            raise TraceError(f"there is no trace {wanted[:64]!r} in it: see --list.")
        return {trace_id: tell(spans)}
    told = {}
    refusals = []
    for trace_id, spans in found.items():
        try:
            told[trace_id] = tell(spans)
        except TraceError as refusal:
            refusals.append(refusal)
    if not told:
        more = f" So are the {len(refusals) - 1} others." if len(refusals) > 1 else ""
        raise TraceError(f"{refusals[0]}{more}")
    return told


def _notes(told: dict[str, list[Story]], unreadable: int) -> list[str]:
    notes = []
    if len(told) > 1:
        notes.append(
            f"of {len(told)} traces with requests this is the one with the slowest first token; "
            "--list shows them, --trace-id chooses one"
        )
    if unreadable:
        notes.append(f"{unreadable} spans could not be read and are left out")
    return notes


def _list(told: dict[str, list[Story]], *, as_json: bool) -> int:
    rows = sorted(told.values(), key=lambda each: -(each[0].ttft or -1))
    if as_json:
        listed = [page.document(each[0], verdict_on(each[0], None)) for each in rows]
        print_json({"schema": page.SCHEMA, "requests": listed, "notes": []})
        return 0
    print_lines([f"{'trace':<33}{'first token ms':>15}  verdict", *map(_row, rows)])
    return 0


def _row(stories: list[Story]) -> str:
    story = stories[0]
    verdict = verdict_on(story, None)
    ttft = "-" if story.ttft is None else f"{story.ttft / 1e6:,.1f}"
    cause = verdict.cause if verdict is not None else "-"
    return f"{story.root.trace_id[:32]:<33}{ttft:>15}  {cause}"[:WIDTH]
