"""The words that `llm-trace bench` understands; imports nothing but what the parser needs."""

from __future__ import annotations

import argparse
from typing import Final

from llm_trace.words import json_object, seconds, several, whole

MOST_TOKENS: Final = 2_000_000
MOST_AT_ONCE: Final = 1024

_SECONDS: Final = seconds(86_400, "a day")

EPILOG: Final = """\
examples:
  llm-trace bench http://127.0.0.1:8000
  llm-trace bench http://127.0.0.1:8000 --lengths 256,4096 --concurrency 1,8
  llm-trace bench http://127.0.0.1:8000 --objective ttft=0.5 --html report.html
  llm-trace bench http://127.0.0.1:8000 --fail-if 'ttft_p95@prefix=new > 500ms'
  llm-trace bench http://127.0.0.1:8000 --json > bench.json
  LLM_TRACE_BENCHMARK=bench.json vllm serve MODEL \\
      --middleware llm_trace.TraceMiddleware

For each prompt length it measures prompts that the server cannot know against
prompts that it just has answered, and takes the server's own counters as proof.
The first request, which may meet a cold server, is kept apart.

thresholds: NAME[@length=N][@concurrency=N][@prefix=new|cached] > NUMBER, also
>=, <, <=; the number in s, ms, us or %.  Names: ttft_, tpot_, duration_ with
median, mean, p90, p95, p99; failed, cancelled, goodput, unconfirmed (shares);
requests_per_second, output_tokens_per_second, prefill_per_token.

status: 0 measured, 1 a threshold was crossed or nothing was answered,
2 bad usage or no server, 130 interrupted.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    add = parser.add_argument
    add("url", metavar="URL", help="the server, such as http://127.0.0.1:8000")
    add("--model", metavar="NAME", help="default: the first that the server lists")
    add("--api", choices=("chat", "completions"), default="chat", help="default chat")
    add(
        *("--lengths", "--prompt-tokens"),
        type=several(MOST_TOKENS),
        metavar="N,N",
        default=(128, 512, 1024, 2048),
        help="prompt tokens to sweep (default 128,512,1024,2048)",
    )
    add(
        "--concurrency",
        type=several(MOST_AT_ONCE),
        metavar="N,N",
        default=(1,),
        help="requests in flight (default 1)",
    )
    add("--requests", type=whole(100_000), default=20, metavar="N", help="a cell (default 20)")
    add("--max-tokens", type=whole(100_000), default=32, metavar="N", help="out (default 32)")
    _add_bounds(parser)
    _add_results(parser)
    _add_access(parser)


def _add_bounds(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("bounds").add_argument
    add("--max-requests", type=whole(10_000_000), default=2000, metavar="N", help="default 2000")
    add("--max-seconds", type=_SECONDS, default=600.0, metavar="S", help="default 600")
    add("--timeout", type=_SECONDS, default=120.0, metavar="S", help="a request (default 120)")
    add("--wait", type=_SECONDS, default=0.0, metavar="S", help="for the server to come up")


def _add_results(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("results").add_argument
    add("--json", action="store_true", help="print one JSON document")
    add("--html", metavar="FILE", help="write a report with plots, in one file")
    add(
        "--objective",
        type=_objective,
        action="append",
        default=[],
        metavar="NAME=S",
        help="ttft, tpot or duration in seconds, for goodput; repeatable",
    )
    add(
        "--fail-if",
        action="append",
        default=[],
        metavar="RULE",
        help="status 1 where it holds, see below; repeatable",
    )


def _add_access(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("access").add_argument
    add("--allow-remote", action="store_true", help="load a server that is not this machine")
    add("--api-key-env", metavar="NAME", help="variable that holds the key, sent as Bearer")
    add("--metrics-url", metavar="URL", help="the server's counters (default: its /metrics)")
    add(
        "--body",
        type=json_object('{"temperature": 0}'),
        default={},
        metavar="JSON",
        help="more of each request's body",
    )


def _objective(text: str) -> tuple[str, float]:
    name, found, value = text.partition("=")
    if not found or name not in {"ttft", "tpot", "duration"}:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be used: use one such as ttft=0.5")
    return name, _SECONDS(value)
