"""The words that `llm-trace diff` understands; imports nothing but what the parser needs."""

from __future__ import annotations

import argparse
from typing import Final

from llm_trace.words import whole

EPILOG: Final = """\
A and B each name a window, a release, or both:
  2h..1h                             from two hours ago until one hour ago
  2026-11-30T09:00Z..2026-11-30T10:00Z
  version=1.4                        the series with this label, over --over
  version=1.4@6h..3h                 both

examples:
  llm-trace diff 2h..1h 1h..now
  llm-trace diff version=1.4 version=1.5 --over 6h
  llm-trace diff 1d..23h 1h..now --where gen_ai_request_model=Qwen/Qwen3-8B

The mean time to first token of each side is split into its phases, which add
up.  Requests that waited in one queue are no independent samples, so a window
is cut into blocks, and a phase has moved when the blocks of the two sides
differ by more than they differ among themselves (Welch's t over blocks,
corrected for the number of phases as Holm does).  Shapes are compared by their
buckets.

status: 0 compared; 1 with --fail-if-slower where the time to first token grew,
or could not be compared; 2 bad usage, or one side has no data.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    add = parser.add_argument
    add("a", metavar="A", help="the side before")
    add("b", metavar="B", help="the side after")
    add(
        "--prometheus",
        metavar="URL",
        default="http://127.0.0.1:9090",
        help="default http://127.0.0.1:9090",
    )
    add("--token-env", metavar="NAME", help="variable with a bearer token for it")
    add("--over", metavar="TIME", default="1h", help="of a side without a window (default 1h)")
    add(
        "--where",
        metavar="LABEL=VALUE",
        action="append",
        default=[],
        help="of both sides, such as job=vllm; repeatable",
    )
    add(
        "--blocks",
        type=whole(48, least=4),
        default=12,
        metavar="N",
        help="a side, 4 to 48 (default 12)",
    )
    add("--json", action="store_true", help="print one JSON document")
    add("--fail-if-slower", action="store_true", help="status 1 where TTFT grew")
