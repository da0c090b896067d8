"""Real servers with several workers: forked, spawned, with the app loaded before, recycled."""

from __future__ import annotations

import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

from programs import LOOPBACK, Program, clean_environment, eventually, free_port, listens
from prometheus_client.parser import text_string_to_metric_families
from stamped_client import ask
from uvicorn_server import CHAT

HERE = str(Path(__file__).parent)
_GUNICORN = (sys.executable, "-m", "gunicorn", "apps:create()", "--chdir", HERE)
_UVICORN = (sys.executable, "-m", "uvicorn", "--factory", "apps:create", "--app-dir", HERE)
_FORKED = (*_GUNICORN, "-k", "uvicorn_worker.UvicornWorker", "-w", 2)

SERVERS = {
    "uvicorn, spawned": (*_UVICORN, "--workers", 2),
    "gunicorn, forked": _FORKED,
    "gunicorn, app loaded before": (*_FORKED, "--preload"),
    "gunicorn, recycled": (*_FORKED, "--max-requests", 4),
}
RELOADED = (*_UVICORN, "--reload")


class WorkerServer(Program):
    """A server whose workers share their numbers in a directory of their own."""

    def __init__(self, kind, folder, **env):
        self.port = free_port()
        self.shared = folder / "shared"
        self.shared.mkdir(exist_ok=True)
        command = SERVERS.get(kind) or (*RELOADED, "--reload-dir", folder)
        at = f"{LOOPBACK}:{self.port}"
        where = (
            ("--bind", at) if "gunicorn" in command else ("--host", LOOPBACK, "--port", self.port)
        )
        env = {"PROMETHEUS_MULTIPROC_DIR": str(self.shared), **env}
        log = folder / f"workers-{self.port}.log"
        super().__init__((*command, *where), log, env=clean_environment(**env))

    def wait(self):
        """Until it serves."""
        self.ready(lambda: listens(self.port), "the server")

    def ask(self):
        """One streamed answer."""
        return self._ask(CHAT, {"tokens": 2, "stream": True})

    def _ask(self, path, body=None):
        """An answer, at last.

        A worker that is recycled closes connections that it has accepted and not read: who asks
        there asks again, as a proxy does.
        """
        for _ in range(5):
            with suppress(ConnectionError, EOFError):
                return ask(self.port, path, body)
        raise AssertionError(f"no answer in five attempts:\n{self.tail()}")

    def page(self):
        """Every sample of the page: value by name and labels."""
        answer = self._ask("/metrics")
        assert answer.status == 200, answer.body
        families = text_string_to_metric_families(answer.body.decode())
        return {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
        }

    def total(self, name):
        """The sum of one metric over its labels."""
        return sum(value for key, value in self.page().items() if key[0] == name)

    def hang(self):
        """A request that stays in flight; the socket that holds it."""
        body = b'{"tokens": 2, "pause": 600, "stream": true}'
        head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        held = socket.create_connection((LOOPBACK, self.port))
        held.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return held

    def workers(self):
        """The processes that serve."""
        found = []
        for pid in _children(self.process.pid):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"resource_tracker" not in command:
                found.append(pid)
        return found

    def kill_workers(self):
        """End all of them at once, without a word; others take their places."""
        before = self.workers()
        for pid in before:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        eventually(
            lambda: len(set(self.workers()) - set(before)) == len(before),
            "no new workers",
            log=self,
        )


def _children(pid):
    tasks = Path(f"/proc/{pid}/task")
    return [int(x) for task in tasks.glob("*/children") for x in task.read_text().split()]
