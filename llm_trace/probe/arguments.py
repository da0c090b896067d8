"""The words that `llm-trace probe` understands; imports nothing but what the parser needs."""

from __future__ import annotations

import argparse
from typing import Final

from llm_trace.words import header, json_object, seconds, whole

MOST_REQUESTS: Final = 1000
MOST_TOKENS: Final = 100_000

EPILOG: Final = """\
examples:
  llm-trace probe https://llm.example.com
  llm-trace probe http://127.0.0.1:8000/ask --body '{"question": "why"}'
  llm-trace probe https://llm.example.com --api-key-env KEY --requests 10 --json

Run it where the clients are. Each request has a traceparent of its own, so that
its trace can be found; a server with llm_trace is asked for its own numbers, and
network = client - server.

status: 0 the stream arrives as it is sent, 1 it arrives in lumps or not at all,
2 bad usage or no server, 130 interrupted.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    add = parser.add_argument
    add("url", metavar="URL", help="a server, or one of its routes; alone: /v1/chat/completions")
    add("--model", metavar="NAME", help="default: the first that the server lists")
    add("--prompt", metavar="TEXT", default="Count from one to fifty.", help="what to ask")
    add("--max-tokens", type=whole(MOST_TOKENS), default=64, metavar="N", help="out (default 64)")
    add(
        "--body",
        type=json_object('{"question": "why"}'),
        metavar="JSON",
        help="the whole body, in place of all of these",
    )
    add(
        "--requests",
        type=whole(MOST_REQUESTS),
        default=3,
        metavar="N",
        help="how many (default 3)",
    )
    add(
        "--timeout",
        type=seconds(3600, "an hour"),
        default=120.0,
        metavar="S",
        help="for each wait (default 120)",
    )
    add(
        "--header",
        type=header,
        action="append",
        default=[],
        metavar="NAME:VALUE",
        help="repeatable",
    )
    add("--api-key-env", metavar="NAME", help="variable that holds the key, sent as Bearer")
    add("--json", action="store_true", help="print one JSON document")
