"""`llm-trace doctor`: every check, what it found, and what to do."""

from __future__ import annotations

import os
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from llm_trace.console import WIDTH, Style, print_json, print_lines, printable, stdout_style
from llm_trace.doctor.environment import CHECKS
from llm_trace.doctor.finding import Finding
from llm_trace.doctor.reach import endpoint
from llm_trace.doctor.server import server

if TYPE_CHECKING:
    import argparse

SCHEMA: Final = "llm-trace.doctor/1"
_COLOURS: Final = {"ok": "green", "note": "cyan", "warning": "yellow", "fault": "red"}


def doctor(args: argparse.Namespace) -> int:
    """Print what was found; 1 where something is at fault."""
    found = list(examine(os.environ, args.url))
    if args.json:
        print_json({"schema": SCHEMA, "findings": [finding._asdict() for finding in found]})
    else:
        print_lines(render(found, stdout_style()))
    return int(any(finding.level == "fault" for finding in found))


def examine(environ: Mapping[str, str], url: str | None) -> Iterator[Finding]:
    """Every check, in the order in which a span travels."""
    for check in CHECKS:
        yield from check(environ)
    yield from endpoint("traces", environ)
    yield from endpoint("metrics", environ)
    if url is not None:
        yield from server(url)


def render(found: Iterable[Finding], style: Style) -> Iterator[str]:
    """The report's lines."""
    counts: Counter[str] = Counter()
    for finding in found:
        counts[finding.level] += 1
        head = f"{finding.level:<8}{finding.check}: "
        text = printable(head + finding.said)
        lines = textwrap.wrap(text, WIDTH, subsequent_indent=" " * 8)
        lines[0] = lines[0].replace(finding.level, style(finding.level, _COLOURS[finding.level]), 1)
        yield from lines
        if finding.fix:
            yield from textwrap.wrap(
                finding.fix, WIDTH, initial_indent=" " * 8 + "-> ", subsequent_indent=" " * 11
            )
    yield ""
    wrong = [f"{level}s: {counts[level]}" for level in ("fault", "warning") if counts[level]]
    yield ", ".join(wrong) or "nothing is wrong that can be seen from here"
