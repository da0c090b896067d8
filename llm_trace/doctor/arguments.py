"""The words that `llm-trace doctor` understands; imports nothing but what the parser needs."""

from __future__ import annotations

import argparse
from typing import Final

EPILOG: Final = """\
examples:
  llm-trace doctor
  llm-trace doctor http://localhost:8000
  kubectl exec deploy/vllm -- llm-trace doctor http://localhost:8000

Run it in the server's own environment.  It goes the way that a span goes:
versions, settings, sampling, workers, vLLM's plugins, the OTLP endpoint, and
with a URL what a running server says of itself.  It sends one empty export
and reads one page, and changes nothing.

status: 0 nothing is at fault; 1 something is; 2 bad usage.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    add = parser.add_argument
    add(
        "url",
        nargs="?",
        metavar="URL",
        help="a running server, such as http://localhost:8000: its metrics page is read too",
    )
    add("--json", action="store_true", help="print machine-readable results")
