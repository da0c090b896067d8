"""Programs that the end-to-end tests start: a group and a log of their own, ended to the last."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from llm_trace.core.clock import SYSTEM

LOOPBACK = "127.0.0.1"
GRACE = 20.0
_POLL = 0.02
_SET_ASIDE = ("OTEL_", "LLM_TRACE_", "PYTEST_", "COVERAGE_", "COV_")


def eventually(condition, what, *, within=30.0, log=None):
    """Poll until `condition` gives something true, and return it; past the time show the log."""
    deadline = SYSTEM.monotonic_ns() + round(within * 1e9)
    while True:
        found = condition()
        if found:
            return found
        if SYSTEM.monotonic_ns() > deadline:
            shown = f"; the end of its log:\n{log.tail()}" if log else ""
            raise AssertionError(f"not within {within:g} s: {what}{shown}")
        time.sleep(_POLL)


def free_port():
    """A loopback port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return probe.getsockname()[1]


def listens(port):
    """Whether somebody accepts connections on the port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0


def clean_environment(**more):
    """This process's environment without telemetry settings of its own, and with `more`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_SET_ASIDE)}
    direct = {"NO_PROXY": f"{LOOPBACK},localhost", "no_proxy": f"{LOOPBACK},localhost"}
    return kept | direct | {"PYTHONUNBUFFERED": "1"} | more


class Program:
    """A running program; `stop` may be called more than once."""

    def __init__(self, command, log, *, env=None):
        self.log = Path(log)
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [str(word) for word in command],
                env=clean_environment() if env is None else env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def stand_back(self):
        """Leave processors to those who watch it, where the kernel groups processes by session.

        A server that keeps both cores busy starves its client for seconds, and what is measured
        then is the machine.
        """
        with suppress(OSError):
            Path(f"/proc/{self.process.pid}/autogroup").write_text("15", encoding="ascii")

    def text(self):
        """All that it has written."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def tail(self, lines=40):
        """The end of what it has written."""
        return "\n".join(self.text().splitlines()[-lines:])

    def ready(self, condition, what, *, within=60.0):
        """Wait for `condition`; a program that has ended is never ready."""

        def alive_and_ready():
            status = self.process.poll()
            if status is not None:
                raise AssertionError(f"{what}: ended with {status}; its log:\n{self.tail()}")
            return condition()

        return eventually(alive_and_ready, what, within=within, log=self)

    def terminate(self, *, within=GRACE):
        """SIGTERM, and the exit status; fails when it takes longer."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"alive {within:g} s after SIGTERM:\n{self.tail()}") from None

    def stop(self):
        """End it and everything that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(GRACE)
