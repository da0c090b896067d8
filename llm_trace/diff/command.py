"""`llm-trace diff`: from the words of the command line to the exit status."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llm_trace.console import print_json, print_lines, stdout_style
from llm_trace.core.clock import SYSTEM
from llm_trace.diff import screen
from llm_trace.diff.blocks import Data, fetch
from llm_trace.diff.comparison import Comparison, compare
from llm_trace.diff.document import document
from llm_trace.diff.errors import DiffError
from llm_trace.diff.prometheus import Prometheus
from llm_trace.diff.side import check, parse
from llm_trace.words import bearer

if TYPE_CHECKING:
    import argparse


def diff(args: argparse.Namespace) -> int:
    """Compare; 1 where it was asked to fail and TTFT grew, or may have."""
    now = SYSTEM.wall_ns() / 1e9
    a, b = (parse(text, where=args.where, over=args.over, now=now) for text in (args.a, args.b))
    check(a, b)
    prometheus = Prometheus(args.prometheus, bearer("--token-env", args.token_env))
    found = compare(*(_with_data(fetch(prometheus, side, args.blocks)) for side in (a, b)))
    _show(found, as_json=args.json)
    unsure = found.slower or found.ttft.word == "unknown"
    return int(args.fail_if_slower and unsure)


def _with_data(data: Data) -> Data:
    if data.count <= 0:
        side = data.side
        raise DiffError(
            f"{side.text!r} has no first tokens ({side.window}"
            + (f", {side.matchers}" if side.matchers else "")
            + "): are the labels and the window right, and is this Prometheus the one that "
            "scrapes llm_trace?"
        )
    return data


def _show(found: Comparison, *, as_json: bool) -> None:
    if as_json:
        print_json(document(found))
    else:
        print_lines(screen.render(found, stdout_style()))
