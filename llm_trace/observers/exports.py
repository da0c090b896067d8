"""Exporters of this very process: made when it begins to serve, and anew after a fork.

A server that loads its app before it forks its workers would hand them threads that do not run and
connections that they share. So nothing is opened while an app is composed; the first request, or
the lifespan before it, does.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from llm_trace.core import faults
from llm_trace.observers.sink import SpanSink


class Made(NamedTuple):
    """The exporters of one process."""

    find_sink: Callable[[], SpanSink | None]
    flush: Callable[[], None]


_NOTHING: Final = Made(lambda: None, lambda: None)


class Exports:
    """Where spans and metrics of a process go.

    Args:
        make: Opens the exporters of the process that calls it.
    """

    def __init__(self, make: Callable[[], Made]) -> None:
        self._make = make
        self._made = _NOTHING
        self._pid = 0
        self._making = threading.Lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def start(self) -> None:
        """Make the exporters, once a process."""
        with self._making:
            if self._pid == os.getpid():
                return
            self._pid = os.getpid()
            try:
                self._made = self._make()
            except Exception as error:  # noqa: BLE001 - rule 1: never hurt the host
                self._made = _NOTHING
                faults.contain("exporters", error)

    def sink(self) -> SpanSink | None:
        """Where spans of this process go."""
        if self._pid != os.getpid():
            self.start()
        return self._made.find_sink()

    def flush(self) -> None:
        """Send what is queued in this process, if it has exporters."""
        if self._pid == os.getpid():
            self._made.flush()

    def _forked(self) -> None:
        """Another thread of the parent may have been making them."""
        self._making = threading.Lock()
