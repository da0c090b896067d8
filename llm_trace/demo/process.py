"""A program that the demo starts: its own group, its log, its end to the last grandchild."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from llm_trace.core.clock import SYSTEM
from llm_trace.demo.errors import DemoError
from llm_trace.demo.signals import deferred

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

GRACE: Final = 5.0
"""Seconds between the polite signal and the one that cannot be refused."""
_POLL: Final = 0.05
_TAIL_BYTES: Final = 16384
_DEAD: Final = "ZX"


@dataclass(slots=True)
class Child:
    """One program, not yet started; `stop` may be called at any time and more than once."""

    name: str
    command: Sequence[str]
    env: Mapping[str, str]
    log: Path
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self) -> None:
        """Run the command as the leader of a new group, its output going to the log."""
        with deferred(), self.log.open("ab") as out:
            self._process = subprocess.Popen(  # noqa: S603 - our own command, no shell
                self.command,
                env=dict(self.env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def stand_back(self) -> None:
        """Leave processors to the other programs, where the kernel groups processes by session.

        An engine that keeps every core busy starves app and client for 100 ms and more, and the
        demo would measure the machine.
        """
        if self._process is not None:
            with suppress(OSError):
                Path(f"/proc/{self._process.pid}/autogroup").write_text("15", encoding="ascii")

    @property
    def exit_status(self) -> int | None:
        """What it exited with; None while it runs or before it was started."""
        return self._process.poll() if self._process else None

    def tail(self, lines: int = 15) -> str:
        """Return the end of its log."""
        return tail(self.log, lines)

    def check(self) -> None:
        """Raise, with the end of the log, when it has died."""
        status = self.exit_status
        if status is None:
            return
        shown = "".join(f"\n    {line}" for line in self.tail().splitlines())
        raise DemoError(
            f"The {self.name} ended with status {status}; the end of its log, {self.log}:{shown}"
        )

    def finish(self) -> None:
        """Wait for a program that ends by itself; raise, with its log, when it failed."""
        while self.exit_status is None:
            time.sleep(_POLL)
        if self.exit_status:
            self.check()

    def stop(self, grace: float = GRACE) -> None:
        """End the whole group: SIGTERM, then SIGKILL for what is left after the grace."""
        if self._process is None:
            return
        with deferred():
            _signal_group(self._process.pid, signal.SIGTERM)
            if not wait_for(lambda: not self._running(), grace):
                _signal_group(self._process.pid, signal.SIGKILL)
                wait_for(lambda: not self._running(), grace)

    def _running(self) -> bool:
        leader = self.exit_status is None
        return leader or bool(self._process and _group_members(self._process.pid))


def tail(log: Path, lines: int = 15) -> str:
    """Return the last lines of a file; nothing when there is none."""
    try:
        text = log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Poll until the condition holds; False when the time is over first."""
    end = SYSTEM.monotonic_ns() + int(seconds * 1e9)
    while not condition():
        if SYSTEM.monotonic_ns() > end:
            return False
        time.sleep(_POLL)
    return True


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return  # empty already; macOS says "permission" for a group of zombies


def _group_members(group: int) -> list[int]:
    """List live members; without /proc, the group's id stands for all of them.

    Zombies do not count: in a container whose first process reaps nobody they stay for ever.
    """
    if not Path("/proc/self/stat").exists():
        return [group] if _exists(group) else []
    stats = (_stat(entry) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid for pid, state, owner in stats if owner == group and state not in _DEAD]


def _exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _stat(entry: Path) -> tuple[int, str, int]:
    """Read pid, state and group; a process that ends while we look is as good as dead."""
    try:
        fields = (entry / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return int(entry.name), "X", 0
    return int(entry.name), fields[0], int(fields[2])
