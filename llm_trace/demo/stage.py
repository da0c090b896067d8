"""The programs of the demo, started together, ready together, and gone together."""

from __future__ import annotations

import re
import secrets
import shutil
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from llm_trace.core.clock import SYSTEM
from llm_trace.demo import engine as programs
from llm_trace.demo.errors import DemoError
from llm_trace.demo.metrics import get
from llm_trace.demo.ports import LOOPBACK, choose
from llm_trace.demo.receiver import Receiver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llm_trace.console import Progress
    from llm_trace.demo.engine import Engine
    from llm_trace.demo.process import Child

_READY_SECONDS: Final = 300
_POLL: Final = 0.2
_OK: Final = 200
_MAKES: Final = "makes a tiny model with random weights, so its text will mean nothing"
_LOG_PREFIX: Final = re.compile(r"^(\(.*?\) )?[A-Z]+ [-\d]+ [:\d]+ \[.*?\]")
"""Process, level, time and place in vLLM's log."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asked of the stage; 0 is any free port."""

    app_port: int = 0
    engine_port: int = 0
    receiver_port: int = 0
    model: Path | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """Everything running."""

    app_port: int
    engine_port: int
    receiver: Receiver
    api_key: str
    work: Path

    @property
    def app_url(self) -> str:
        """Where the RAG app answers."""
        return f"http://{LOOPBACK}:{self.app_port}"

    @property
    def engine_url(self) -> str:
        """Where the engine answers."""
        return f"http://{LOOPBACK}:{self.engine_port}"


@contextmanager
def stage(engine: Engine, options: Options, progress: Progress) -> Iterator[Stage]:
    """Start everything and end it again, whatever happens in between.

    What can be checked is checked first, so that nothing is half started.
    """
    given = [options.app_port, options.engine_port, options.receiver_port]
    asked = [port for port in given if port]
    if len(set(asked)) < len(asked):
        raise DemoError(
            "Two programs cannot share a port: give the --*-port options different ones."
        )
    app_port = choose(options.app_port, "--app-port")
    engine_port = choose(options.engine_port, "--engine-port")
    choose(options.receiver_port, "--receiver-port")
    with ExitStack() as stack:
        work = stack.enter_context(_work_directory())
        receiver = stack.enter_context(Receiver(options.receiver_port))
        built = Stage(app_port, engine_port, receiver, secrets.token_urlsafe(12), work)
        server = _engine_program(engine, options, built, stack, progress)
        app = programs.app_server(
            app_port, built.engine_url, built.api_key, receiver.endpoint, work / "app.log"
        )
        for child in (server, app):
            stack.callback(child.stop)
            child.start()
        server.stand_back()
        _await_ready(app, app_port, progress)
        _await_ready(server, engine_port, progress)
        yield built


@contextmanager
def _work_directory() -> Iterator[Path]:
    """Make a place for the model and the logs; it stays when an error names a log to read."""
    work = Path(tempfile.mkdtemp(prefix="llm-trace-demo-"))
    keep = False
    try:
        yield work
    except DemoError:
        keep = True
        raise
    finally:
        if not keep:
            shutil.rmtree(work, ignore_errors=True)


def _engine_program(
    engine: Engine, options: Options, built: Stage, stack: ExitStack, progress: Progress
) -> Child:
    endpoint, log = built.receiver.endpoint, built.work / "engine.log"
    if engine.python is None:
        return programs.simulated_server(built.engine_port, endpoint, log)
    model = options.model or _make_model(engine.python, built.work, stack, progress)
    return programs.vllm_server(engine.python, model, built.engine_port, endpoint, log)


def _make_model(python: Path, work: Path, stack: ExitStack, progress: Progress) -> Path:
    progress.update(_MAKES, force=True)
    maker = programs.model_maker(python, work / "model", work / "model.log")
    stack.callback(maker.stop)
    maker.start()
    maker.finish()
    return work / "model"


def _await_ready(child: Child, port: int, progress: Progress) -> None:
    started = SYSTEM.monotonic_ns()
    while get(port, "/health")[0] != _OK:
        child.check()
        waited = (SYSTEM.monotonic_ns() - started) / 1e9
        if waited > _READY_SECONDS:
            raise DemoError(f"The {child.name} was not ready after {_READY_SECONDS} s: {child.log}")
        last = _LOG_PREFIX.sub("", child.tail(1)).strip()
        progress.update(f"waits for the {child.name}, {waited:.0f} s so far: {last}")
        time.sleep(_POLL)
    took = (SYSTEM.monotonic_ns() - started) / 1e9
    progress.say(f"{child.name} ready after {took:.0f} s")
