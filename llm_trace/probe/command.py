"""`llm-trace probe`: from the words of the command line to the exit status."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llm_trace.console import Progress, print_json, print_lines, stdout_style
from llm_trace.probe import page
from llm_trace.probe.reading import Reading, read
from llm_trace.probe.target import Target, chat_body, question, target_of
from llm_trace.probe.wire import exchange, first_model
from llm_trace.words import bearer

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from typing import Any


def probe(args: argparse.Namespace) -> int:
    """Ask, read, tell; 1 where the stream is lumped or nothing was answered.

    Raises:
        LlmTraceError: The target cannot be asked.
    """
    headers = {**dict(args.header), **bearer("--api-key-env", args.api_key_env)}
    target = target_of(args.url, headers, args.timeout)
    body = _body(args, target)
    progress = Progress()
    readings: list[Reading] = []
    for number in range(1, args.requests + 1):
        progress.update(f"request {number} of {args.requests}")
        asked = question(target, body)
        readings.append(read(exchange(target, asked), asked.trace_id))
    progress.say(f"asked {args.requests} times")
    if args.json:
        print_json(page.document(target.url, readings))
    else:
        print_lines(page.render(target.url, readings, stdout_style()))
    failed = all(reading.failure is not None for reading in readings)
    return int(failed or page.stream_of(readings) == "lumped")


def _body(args: argparse.Namespace, target: Target) -> Mapping[str, Any]:
    if args.body is not None:
        return dict(args.body)
    if not target.is_chat and args.model is None:
        return chat_body(None, args.prompt, args.max_tokens)
    model = args.model or first_model(target)
    return chat_body(model, args.prompt, args.max_tokens)
