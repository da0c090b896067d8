"""The words that `llm-trace explain` understands; imports nothing but what the parser needs."""

from __future__ import annotations

import argparse
from typing import Final

from llm_trace.words import header, whole

EPILOG: Final = """\
examples:
  llm-trace explain trace.json
  llm-trace explain traces.jsonl --list
  llm-trace explain 65297f47cf671d730a12eccb12bd9bf3 --api http://tempo:3200
  llm-trace explain 65297f47cf671d730a12eccb12bd9bf3 --api http://jaeger:16686
  llm-trace explain http://localhost:8000/debug/llm_trace
  llm-trace explain trace.json --device "H100 SXM" --model-config Qwen/Qwen3-8B

Reads traces of llm_trace and vLLM's own spans.  Of several traces the one with
the slowest first token is told.  The page at /debug/llm_trace is the flight
recorder: it is there when LLM_TRACE_FLIGHT_RECORDER is set.

status: 0 explained; 2 bad usage, or there is no request in it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    add = parser.add_argument
    add(
        "trace",
        metavar="TRACE",
        help="an OTLP JSON file (also line by line), - for standard input, a URL, or a trace id",
    )
    add("--api", metavar="URL", help="Tempo or Jaeger, for a trace id")
    add("--token-env", metavar="NAME", help="variable with a bearer token for it")
    add(
        "--header",
        type=header,
        action="append",
        default=[],
        metavar="NAME:VALUE",
        help="sent to it, such as X-Scope-OrgID: team; repeatable",
    )
    add("--trace-id", metavar="ID", help="which trace of several; default: the slowest")
    add("--list", action="store_true", help="list the traces with requests, the slowest first")
    add("--device", help="judge against the floors of this device; see llm-trace roofline")
    add("--model-config", metavar="MODEL", help="and of this model")
    add("--tensor-parallel", type=whole(4096), default=1, metavar="N", help="devices that share it")
    add("--json", action="store_true", help="print machine-readable results")
