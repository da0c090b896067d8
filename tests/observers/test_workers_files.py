"""What workers write for each other, and what becomes of the dead's."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter

import pytest
from prometheus_client import CollectorRegistry, values
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector

from llm_trace import semconv as s
from llm_trace.core import faults
from llm_trace.observers import workers
from llm_trace.observers.metrics import Instruments
from llm_trace.observers.workers import Published, forget_dead, leftovers


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A process whose numbers are in files from the start, in this directory."""
    monkeypatch.setenv(workers.VARIABLE, str(tmp_path))
    monkeypatch.setattr(values, "ValueClass", values.MultiProcessValue())
    monkeypatch.setattr(workers, "EVERY", 3600.0)
    return tmp_path


def samples():
    """What a reader of all files sees."""
    registry = CollectorRegistry()
    MultiProcessCollector(registry)
    return {(x.name, *x.labels.values()): x.value for f in registry.collect() for x in f.samples}


def families(gauges, counted):
    """A gauge and a counter with one label each."""
    active = GaugeMetricFamily("active", "Now.", labels=["phase"])
    lost = CounterMetricFamily("lost", "Ever.", labels=["reason"])
    for label, value in gauges.items():
        active.add_metric([label], value)
    for label, value in counted.items():
        lost.add_metric([label], value)
    return [active, lost]


@pytest.mark.usefixtures("shared")
def test_others_see_what_was_written_last():
    """Gauges as they are, counters as they have grown; a gauge that is told no more is 0."""
    told = families({"decode": 2, "prefill": 1}, {"full": 3})
    published = Published(lambda: told)

    published.write()
    assert samples() == {
        ("active", "decode"): 2,
        ("active", "prefill"): 1,
        ("lost_total", "full"): 3,
    }
    told = families({"decode": 1}, {"full": 3, "late": 1})
    for _ in range(2):
        published.write()
    assert samples() == {
        ("active", "decode"): 1,
        ("active", "prefill"): 0,
        ("lost_total", "full"): 3,
        ("lost_total", "late"): 1,
    }


@pytest.mark.usefixtures("shared")
def test_every_live_number_of_ours_can_be_written():
    """The families that are read when asked are all on the shared page."""
    instruments = Instruments()
    instruments.published.write()

    names = {key[0] for key in samples()}
    assert {family.name for family in instruments.live() if family.samples} <= {
        name.removesuffix("_total") for name in names
    }
    assert s.REQUESTS_ACTIVE.prometheus in names


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_adds_its_own_part(shared):
    """What its parent counted is in the parent's file; its own thread writes on."""
    told = families({"decode": 1}, {"full": 3})
    published = Published(lambda: told)
    published.start()
    published.write()

    child = os.fork()
    if not child:
        told = families({"decode": 1}, {"full": 5})
        published.write()
        writing = published._thread.is_alive() and published._thread in threading.enumerate()
        os._exit(7 if writing else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

    assert samples() == {("active", "decode"): 2, ("lost_total", "full"): 5}
    forget_dead(str(shared))
    assert samples() == {("active", "decode"): 1, ("lost_total", "full"): 5}


@pytest.mark.skipif(sys.platform != "linux", reason="a zombie is seen in /proc")
def test_a_zombie_is_dead(shared):
    """Its parent may be slow to ask for its status."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    files = [shared / f"gauge_livesum_{pid}.db" for pid in (child.pid, os.getpid(), "odd")]
    for file in files:
        file.touch()

    forget_dead(str(shared))

    assert [file.exists() for file in files] == [False, True, True]
    child.wait()


def test_files_of_an_earlier_run_are_said(shared, caplog):
    """They are older than the server; those of its workers are not."""
    for name, at in (("counter_1.db", 1_000_000), ("counter_2.db", None)):
        (shared / name).touch()
        if at:
            os.utime(shared / name, (at, at))

    published = Published(list)
    published.start()
    published.start()

    assert leftovers(str(shared)) == 1
    assert leftovers(str(shared / "missing")) == 0
    assert [record.args for record in caplog.records] == [(str(shared), 1)]


def test_a_writing_that_fails_is_counted(monkeypatch):
    """A disk that is full ends no thread and hurts no request."""
    monkeypatch.setattr(faults, "internal", Counter())

    class Twice:
        """An event that comes at the third asking."""

        asked = 0

        def wait(self, _seconds):
            """Whether it has come."""
            self.asked += 1
            return self.asked > 2

    def full():
        raise OSError("no space left")

    with faults.production():
        Published(full)._run(Twice())

    assert Counter(workers=2) == faults.internal
