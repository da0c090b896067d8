"""Programs of the demo end entirely, whatever they and their children do."""

import os
import signal
import sys

import pytest

from llm_trace.demo.errors import DemoError
from llm_trace.demo.process import Child, _group_members, wait_for
from llm_trace.demo.signals import deferred, terminable

FAMILY = """
import signal, subprocess, sys
stubborn = sys.argv[1] == "stubborn"
code = "import signal, sys, threading\\n"
if stubborn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    code += "signal.signal(signal.SIGTERM, signal.SIG_IGN)\\n"
code += "print('child up', flush=True)\\nthreading.Event().wait()"
children = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
if sys.argv[1] == "orphaning":
    sys.exit(3)
children[0].wait()
"""


@pytest.fixture
def family(tmp_path):
    """Start a parent with two children of a temper; none outlives the test."""
    born = []

    def start(temper):
        child = Child(
            "family", [sys.executable, "-c", FAMILY, temper], os.environ, tmp_path / "log"
        )
        born.append(child)
        child.start()
        assert wait_for(lambda: child.tail().count("child up") == 2, 20)
        return child

    yield start
    for child in born:
        child.stop(grace=0)


@pytest.mark.parametrize(("temper", "grace"), [("meek", 10), ("stubborn", 0.2), ("orphaning", 10)])
def test_stop_ends_the_whole_family(family, temper, grace):
    """Parent and children go: when asked, when they refuse, and when the parent went first."""
    child = family(temper)

    child.stop(grace=grace)

    assert _group_members(child._process.pid) == []
    assert child.exit_status is not None


def test_a_program_that_died_is_shown_with_its_log(tmp_path):
    """The error holds the status and the end of the log, with the log's place."""
    child = Child("engine", [sys.executable, "-c", "exit('no memory')"], {}, tmp_path / "log")
    child.start()

    with pytest.raises(DemoError, match=r"(?s)engine ended with status 1.*log.*no memory"):
        child.finish()


def test_finish_waits_for_a_program_that_ends_well(tmp_path):
    """A program that ends with 0 is no fault."""
    child = Child("maker", [sys.executable, "-c", "print('made')"], {}, tmp_path / "log")
    child.start()
    child.finish()

    assert child.tail() == "made"


def test_a_program_never_started_can_be_stopped(tmp_path):
    """Stopping is safe at any time."""
    child = Child("engine", ["nothing"], {}, tmp_path / "log")
    child.stop()
    child.check()

    assert child.exit_status is None
    assert child.tail() == ""


def test_a_command_that_does_not_exist_leaves_nothing_to_stop(tmp_path):
    """The system's error is passed on."""
    child = Child("engine", [str(tmp_path / "absent")], {}, tmp_path / "log")

    with pytest.raises(FileNotFoundError):
        child.start()
    child.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_ends_by_signal_unwind_the_stack(number):
    """SIGTERM and a closed terminal become an exit that runs every clean-up."""
    with pytest.raises(SystemExit) as end, terminable():
        signal.raise_signal(number)

    assert end.value.code == 128 + number


def test_signals_wait_for_the_end_of_a_deferred_block():
    """A clean-up is not cut in half: the signal takes effect after it."""
    done = []

    def clean_up():
        with deferred():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            done.append("cleaned")

    with pytest.raises(KeyboardInterrupt):
        clean_up()
    assert done == ["cleaned"]


def test_a_program_that_stands_back_still_runs_and_ends(tmp_path):
    """Where the kernel knows groups it is asked for less; where it does not, nothing happens."""
    child = Child("sleeper", ("sleep", "60"), dict(os.environ), tmp_path / "log")
    child.stand_back()
    child.start()
    child.stand_back()

    assert child.exit_status is None
    child.stop()
    assert child.exit_status is not None
