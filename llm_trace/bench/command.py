"""`llm-trace bench`: from the words of the command line to the exit status."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

from llm_trace.bench import gates, page, screen
from llm_trace.bench.document import document
from llm_trace.bench.errors import BenchError
from llm_trace.bench.plan import Plan
from llm_trace.bench.results import Results, results
from llm_trace.bench.server import Server, find_model, new_client
from llm_trace.bench.sweep import Run, Sweep
from llm_trace.bench.target import Target, check_url, root_of
from llm_trace.console import Progress, print_json, print_lines, stdout_style
from llm_trace.core.inband import ASKED, HEADER
from llm_trace.words import bearer

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from llm_trace.bench.gates import Check

_ASKS: Final = {HEADER: ASKED}
"""Asks a server that has llm_trace for its ledger; others do not know it."""

INTERRUPTED: Final = "it was interrupted"


def bench(args: argparse.Namespace) -> int:
    """Run it; 1 where a threshold was crossed or nothing was answered."""
    rules = [gates.parse(text) for text in args.fail_if]
    report = None if args.html is None else _writable(Path(args.html))
    progress = Progress()
    target, run = asyncio.run(_measure(args, progress))
    found = results(run)
    checks = gates.check(rules, found)
    progress.say(f"measured {sum(cell.ok for cell in found.cells)} answers")
    _show(args, found, target, checks)
    if report is not None:
        _write(report, page.render(found, target, checks))
        progress.say(f"the report is {report}")
    if run.stopped == INTERRUPTED:
        raise KeyboardInterrupt
    return int(not found.answered or any(check.failed for check in checks))


def _writable(path: Path) -> Path:
    """Find out before the run, not after it, that the report has no place."""
    try:
        path.touch()
    except (OSError, ValueError) as fault:
        raise BenchError(f"--html {path} cannot be written: {fault}.") from None
    return path


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as fault:  # the disk may have filled up meanwhile
        raise BenchError(f"--html {path} cannot be written: {fault}.") from None


async def _measure(args: argparse.Namespace, progress: Progress) -> tuple[Target, Run]:
    for url in filter(None, (args.url, args.metrics_url)):
        check_url(url, allow_remote=args.allow_remote)
    root = root_of(args.url)
    headers = bearer("--api-key-env", args.api_key_env)
    async with new_client(max(args.concurrency), remote=args.allow_remote) as client:
        progress.update(f"asks {root} what it serves")
        model, room = await find_model(client, root, headers, args.model, args.wait)
        target = Target(
            root=root,
            api=args.api,
            model=model,
            headers={**headers, **_ASKS},
            extra={**({"ignore_eos": True} if room else {}), **args.body},
            metrics=args.metrics_url or f"{root}/metrics",
        )
        plan = _plan(args, room, progress)
        return target, await _swept(Sweep(Server(client, target), plan, progress.update))


async def _swept(sweep: Sweep) -> Run:
    """What was measured; all of it up to now where the user has seen enough."""
    try:
        await sweep()
    except asyncio.CancelledError:
        if not sweep.run.measured:
            raise
        sweep.run.stopped = INTERRUPTED
    return sweep.run


def _plan(args: argparse.Namespace, room: int | None, progress: Progress) -> Plan:
    lengths = _fitting(args.lengths, room, args.max_tokens)
    dropped = sorted(set(args.lengths) - set(lengths))
    if dropped:
        said = ", ".join(map(str, dropped))
        progress.say(f"left out: {said} prompt tokens, as the model has room for {room} in all")
    return Plan(
        lengths=lengths,
        concurrencies=args.concurrency,
        requests=args.requests,
        max_tokens=args.max_tokens,
        max_requests=args.max_requests,
        max_seconds=args.max_seconds,
        timeout=args.timeout,
        objectives=dict(args.objective),
    )


def _fitting(lengths: Sequence[int], room: int | None, max_tokens: int) -> tuple[int, ...]:
    fitting = tuple(n for n in lengths if room is None or n + max_tokens <= room)
    if not fitting:
        raise BenchError(
            f"the model has room for {room} tokens, less than every one of --lengths and the "
            f"{max_tokens} of --max-tokens: ask for shorter ones."
        )
    return fitting


def _show(
    args: argparse.Namespace, found: Results, target: Target, checks: Sequence[Check]
) -> None:
    if args.json:
        print_json(document(found, target, checks))
    else:
        print_lines(screen.render(found, target, checks, stdout_style()))
