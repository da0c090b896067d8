"""The `llm-trace` command: a table of subcommands, and errors as sentences."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from llm_trace._version import __version__
from llm_trace.bench.arguments import add_arguments as _bench_arguments
from llm_trace.console import discard_stdout, harmless, print_lines
from llm_trace.diff.arguments import add_arguments as _diff_arguments
from llm_trace.doctor.arguments import add_arguments as _doctor_arguments
from llm_trace.errors import LlmTraceError, MissingExtraError
from llm_trace.explain.arguments import add_arguments as _explain_arguments
from llm_trace.probe.arguments import add_arguments as _probe_arguments
from llm_trace.roofline.arguments import add_arguments as _roofline_arguments
from llm_trace.words import whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FAULT: Final = 2
INTERRUPTED: Final = 130
UNREAD: Final = 141
"""What a shell makes of a program whose reader, such as `head`, went away."""


class Command(NamedTuple):
    """One subcommand: what it is for, its arguments, and where its code lies."""

    name: str
    help: str
    arguments: Callable[[argparse.ArgumentParser], None]
    module: str
    function: str
    extra: str | None = None
    """The extra that holds the packages it imports."""
    needs: tuple[str, ...] = ()
    """Those packages."""


def _demo_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--json", action="store_true", help="print machine-readable results")
    add("--keep", action="store_true", help="keep everything running until Ctrl-C")
    add("--simulate", action="store_true", help="use a simulated engine even where vLLM is")
    add("--vllm-python", metavar="PATH", help="a Python that has vLLM and llm_trace")
    add("--model", type=Path, metavar="DIR", help="a model for vLLM; default: a tiny random one")
    add("--requests", type=whole(500), default=12, metavar="N", help="of each class (default 12)")
    add("--concurrency", type=whole(64), default=12, metavar="N", help="at once (default 12)")
    add("--max-tokens", type=whole(512), default=32, metavar="N", help="per answer (default 32)")
    port = whole(65_535, least=0, use="1 to 65535, or 0 for a free one")
    for name in ("app", "engine", "receiver"):
        add(f"--{name}-port", type=port, default=0, metavar="PORT", help="default: a free one")


COMMANDS: Final = (
    Command(
        "demo",
        "a RAG app on vLLM under load: where the time to first token goes",
        _demo_arguments,
        "llm_trace.demo.run",
        "demo",
        "demo",
        ("fastapi", "httpx", "uvicorn"),
    ),
    Command(
        "roofline",
        "what a model can at best do on a device: floors of prefill and decode",
        _roofline_arguments,
        "llm_trace.roofline.command",
        "roofline",
    ),
    Command(
        "explain",
        "one request from its trace: where its time went, why, and by whose definition",
        _explain_arguments,
        "llm_trace.explain.command",
        "explain",
    ),
    Command(
        "doctor",
        "why are there no spans? Checks versions, settings, endpoints and a server",
        _doctor_arguments,
        "llm_trace.doctor.command",
        "doctor",
    ),
    Command(
        "bench",
        "how long a server's first token takes, by prompt length, new prefix and cached",
        _bench_arguments,
        "llm_trace.bench.command",
        "bench",
        "bench",
        ("httpx",),
    ),
    Command(
        "diff",
        "which phase of the time to first token moved between two windows or releases",
        _diff_arguments,
        "llm_trace.diff.command",
        "diff",
    ),
    Command(
        "probe",
        "from outside: what the network adds, and whether a proxy lumps the stream",
        _probe_arguments,
        "llm_trace.probe.command",
        "probe",
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; what goes wrong on the user's side is one sentence and status 2."""
    _open_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):  # a server may be called what no screen can show
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return _run(argv)
    except LlmTraceError as fault:
        sys.stderr.write(f"llm-trace: {harmless(str(fault))}\n")
        return FAULT
    except KeyboardInterrupt:
        sys.stderr.write("\nllm-trace: interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:
        discard_stdout()
        return UNREAD


def _run(argv: Sequence[str] | None) -> int:
    parser = _parser()
    args = parser.parse_args(argv)
    if args.command is None:
        print_lines(parser.format_help().splitlines())
        return 0
    return _load(args.command)(args)


def _open_closed_streams() -> None:
    """Put nothing in the place of a stream that the caller closed, where Python has None."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="llm-trace", description="Says which wait made the first token slow."
    )
    parser.add_argument("--version", action="version", version=f"llm-trace {__version__}")
    parser.set_defaults(command=None)
    subparsers = parser.add_subparsers(metavar="COMMAND")
    for command in COMMANDS:
        one = subparsers.add_parser(command.name, help=command.help, description=command.help)
        command.arguments(one)
        one.set_defaults(command=command)
    return parser


def _load(command: Command) -> Callable[[argparse.Namespace], int]:
    missing = [name for name in command.needs if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"`llm-trace {command.name}` needs {', '.join(missing)}: "
            f"pip install 'llm-trace[{command.extra}]'"
        )
    function: Callable[[argparse.Namespace], int] = getattr(
        importlib.import_module(command.module), command.function
    )
    return function


if __name__ == "__main__":
    sys.exit(main())
