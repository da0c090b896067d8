"""Containment: quiet and counted in production, loud under pytest."""

import logging
import os
from collections import Counter
from contextlib import suppress

import pytest

from llm_trace.core import faults


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Counters as in a new process."""
    monkeypatch.setattr(faults, "internal", Counter())
    monkeypatch.setattr(faults, "dropped", Counter())
    monkeypatch.setattr(faults, "_logged", set())


def test_a_fault_is_raised_under_pytest():
    """Containment can never hide our own bugs from our own tests."""
    with pytest.raises(ValueError, match="a bug of ours"):
        faults.contain("here", ValueError("a bug of ours"))

    assert Counter() == faults.internal


def test_a_fault_is_contained_outside_pytest(monkeypatch):
    """Without pytest around nothing is raised."""
    monkeypatch.delitem(os.environ, "PYTEST_CURRENT_TEST")

    faults.contain("here", ValueError("a bug of ours"))

    assert Counter(here=1) == faults.internal


def test_a_fault_is_counted_each_time_and_logged_once(caplog):
    """One line for each place and kind of error; the counter tells how often."""
    with faults.production():
        for _ in range(3):
            faults.contain("here", ValueError("a"))
        faults.contain("here", KeyError("b"))
        faults.contain("there", ValueError("c"))

    expected = [("llm_trace", logging.WARNING, place) for place in ("here", "here", "there")]
    assert Counter(here=4, there=1) == faults.internal
    assert expected == [(r.name, r.levelno, r.args[0]) for r in caplog.records]
    assert [ValueError, KeyError, ValueError] == [r.exc_info[0] for r in caplog.records]


def test_the_log_is_bounded(caplog):
    """However many places fail, the log has a bounded number of lines."""
    limit = faults._MAX_LOGGED

    with faults.production():
        for number in range(limit + 10):
            faults.contain(f"place {number}", ValueError())

    assert limit == len(caplog.records)
    assert limit + 10 == faults.internal.total()


def test_production_lasts_as_long_as_its_block():
    """Modes nest, and the end of the block makes faults loud again, even after an error."""
    with suppress(KeyError), faults.production():
        with faults.production():
            faults.contain("inner", ValueError())
        faults.contain("outer", ValueError())
        raise KeyError

    with pytest.raises(ValueError, match="loud"):
        faults.contain("after", ValueError("loud"))
    assert Counter(inner=1, outer=1) == faults.internal


def test_a_refused_measurement_is_counted_by_reason():
    """Nothing is dropped in silence."""
    faults.drop("late_phase")
    faults.drop("late_phase")
    faults.drop("calls")

    assert Counter(late_phase=2, calls=1) == faults.dropped
