"""Several workers behind one port, and one page with the numbers of all.

prometheus_client shares counters and histograms between processes through files, where
PROMETHEUS_MULTIPROC_DIR names a directory for them. What is read where it lives when somebody asks
(requests in flight, faults) is in no such file: so each worker writes it there every second, and
whenever its own page is read.

Counters of a worker that died are kept, so sums never fall. What it had in flight is dropped:
gauges are of the living, and who reads the page removes the files of the dead.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from prometheus_client import Counter, Gauge, values
from prometheus_client.metrics_core import Metric as Family

from llm_trace import semconv as s
from llm_trace.core import faults

VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
EVERY: Final = 1.0
"""Seconds between two writings of what is read live."""

_MODES: Final = {s.ENGINE_OLDEST_WAITING.prometheus: "livemax"}
"""How the gauges of workers become one, where they are not added up."""


def are_many() -> bool:
    """Whether the numbers of this process are one worker's of several."""
    return bool(getattr(values.ValueClass, "_multiprocess", False))


def directory() -> str | None:
    """Where workers share their numbers, by either spelling that prometheus_client knows."""
    return os.environ.get(VARIABLE, os.environ.get(VARIABLE.lower()))


def fault() -> str | None:
    """Why workers cannot share their numbers though they are to; None where all is well."""
    named = directory()
    if named is None and not are_many():
        return None
    if not are_many():
        return (
            f"{VARIABLE} was set after prometheus_client was imported, so each worker keeps its "
            "numbers to itself: set it in the environment that the server starts with."
        )
    if not named or not (Path(named).is_dir() and os.access(named, os.W_OK | os.X_OK)):
        return (
            f"{VARIABLE}={named or ''!r} is no directory that this process may write to: make an "
            "empty one on a local disk before the server starts."
        )
    return None


def is_closed() -> bool:
    """Whether no metric can be made at all: prometheus_client would raise for each."""
    return are_many() and fault() is not None


def leftovers(shared: str) -> int:
    """How many files an earlier run of the server left there: they add to the sums of this one.

    Files that are older than the server itself, which is the parent of its workers; 0 where the
    system does not tell since when that has run.
    """
    try:
        begun = _begun(os.getppid())
        return sum(path.stat().st_mtime < begun for path in Path(shared).glob("*.db"))
    except (OSError, ValueError, StopIteration):
        return 0


def _begun(pid: int) -> float:
    """When a process began, in Unix seconds, to the second before."""
    booted = next(x for x in Path("/proc/stat").read_text().splitlines() if x.startswith("btime"))
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19])
    return int(booted.split()[1]) + ticks / os.sysconf("SC_CLK_TCK") - 1


def forget_dead(shared: str) -> None:
    """Remove what dead workers had in flight."""
    from prometheus_client.multiprocess import mark_process_dead  # noqa: PLC0415 - warns at import

    for path in Path(shared).glob("gauge_live*_*.db"):
        pid = path.stem.rpartition("_")[2]
        if pid.isdigit() and not _is_alive(int(pid)):
            mark_process_dead(pid, shared)  # type: ignore[no-untyped-call]


def _is_alive(pid: int) -> bool:
    if os.name == "nt":  # where signal 0 is no question but a Ctrl-C
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Whether it is dead, and its parent has not asked for its status yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1] == b"Z"
    except OSError:
        return False


class Published:
    """Numbers that are read where they live, written to where other processes read.

    Args:
        read: Gives the families.
    """

    def __init__(self, read: Callable[[], Iterable[Family]]) -> None:
        self._read = read
        self._metrics: dict[str, Any] = {}
        self._told: dict[tuple[str, ...], float] = {}
        """By sample: what was written last."""
        self._writing = threading.Lock()
        self._thread: threading.Thread | None = None
        _all.add(self)

    def start(self) -> None:
        """Write now and then, from a thread of this process."""
        if self._thread is None:
            _warn_of_leftovers()
            self._thread = threading.Thread(
                target=self._run, args=(threading.Event(),), name="llm_trace-workers", daemon=True
            )
            self._thread.start()

    def write(self) -> None:
        """Write all as it is now."""
        with self._writing:
            silent = {key for key, value in self._told.items() if value and self._is_gauge(key[0])}
            for family in self._read():
                for sample in family.samples:
                    key = (family.name, *sample.labels.values())
                    silent.discard(key)
                    self._write(family, sample.labels, key, sample.value)
            for key in silent:  # what is told no more is 0
                self._child(key).set(0)
                self._told[key] = 0

    def before_fork(self) -> None:
        """Let no fork happen in the middle of a writing: the child could not get the locks."""
        self._writing.acquire()

    def after_fork(self, *, in_child: bool) -> None:
        """Write on; a child of a process that wrote does so, too."""
        if not in_child:
            self._writing.release()
            return
        self._writing = threading.Lock()
        if self._thread is not None:
            self._thread = None
            self.start()

    def _run(self, never: threading.Event) -> None:
        while not never.wait(EVERY):
            try:
                self.write()
            except Exception as error:  # noqa: BLE001 - a disk that is full hurts nobody
                faults.contain("workers", error)

    def _is_gauge(self, name: str) -> bool:
        return isinstance(self._metrics[name], Gauge)

    def _child(self, key: tuple[str, ...]) -> Any:
        metric = self._metrics[key[0]]
        return metric.labels(*key[1:]) if key[1:] else metric

    def _write(
        self, family: Family, labels: dict[str, str], key: tuple[str, ...], value: float
    ) -> None:
        if key[0] not in self._metrics:
            self._metrics[key[0]] = _metric(family, tuple(labels))
        if family.type == "counter":
            self._child(key).inc(value - self._told.get(key, 0))
        else:
            self._child(key).set(value)
        self._told[key] = value


def _metric(family: Family, labels: tuple[str, ...]) -> Any:
    if family.type == "counter":
        return Counter(family.name, family.documentation, labels, registry=None)
    mode: Any = _MODES.get(family.name, "livesum")
    return Gauge(family.name, family.documentation, labels, registry=None, multiprocess_mode=mode)


def _warn_of_leftovers() -> None:
    shared = directory() or ""
    if number := leftovers(shared):
        faults.log().warning(
            "llm_trace: %s holds %d files of an earlier run, which add to the counters of this "
            "one: empty the directory before the server starts.",
            *(shared, number),
        )


_all: weakref.WeakSet[Published] = weakref.WeakSet()
_held: list[Published] = []
"""Those that a fork in progress holds."""


def write_all() -> None:
    """Bring this process's part of the page up to date."""
    for published in tuple(_all):
        published.write()


def _before_fork() -> None:
    _held[:] = _all
    for published in _held:
        published.before_fork()


def _after_fork(*, in_child: bool) -> None:
    while _held:
        _held.pop().after_fork(in_child=in_child)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=lambda: _after_fork(in_child=False),
        after_in_child=lambda: _after_fork(in_child=True),
    )
