"""Exporters belong to the process that made them."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from llm_trace.core import faults
from llm_trace.observers.exports import Exports, Made


class Opened:
    """What makes exporters, and notes in which process."""

    def __init__(self):
        self.pids = []
        self.flushed = 0

    def __call__(self):
        """Make some."""
        self.pids.append(os.getpid())
        return Made(lambda: self, self.flush)

    def flush(self):
        """Note it."""
        self.flushed += 1


def test_exporters_are_made_once_when_they_are_wanted():
    """Neither by composing an app nor by flushing one that has not served."""
    opened = Opened()
    exports = Exports(opened)

    exports.flush()
    assert (opened.pids, opened.flushed) == ([], 0)
    assert exports.sink() is opened
    exports.start()
    exports.flush()
    assert (opened.pids, opened.flushed) == ([os.getpid()], 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_makes_its_own():
    """Even when another thread of its parent was making some; it flushes none of its parent's."""
    opened = Opened()
    exports = Exports(opened)
    exports.start()
    with exports._making:
        child = os.fork()
        if not child:
            exports.flush()
            exports.sink()
            os._exit(opened.pids[1:] == [os.getpid()] and not opened.flushed)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_exporters_that_cannot_be_made_cost_no_request(monkeypatch):
    """They are tried once; spans go nowhere, and the fault is counted."""
    monkeypatch.setattr(faults, "internal", Counter())

    def broken():
        raise OSError("no certificate")

    exports = Exports(broken)
    with faults.production():
        assert [exports.sink(), exports.sink()] == [None, None]
    exports.flush()

    assert Counter(exporters=1) == faults.internal
