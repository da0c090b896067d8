"""A processor measured here and now."""

from __future__ import annotations

import importlib.util

import pytest

from llm_trace.cli import main
from llm_trace.roofline import measure


def test_without_an_array_library_it_says_what_to_install(monkeypatch, capsys):
    """The exact command."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)

    assert main(["roofline", "Qwen3-8B", "--device", "cpu"]) == 2
    assert "pip install numpy" in capsys.readouterr().err


def test_the_best_of_a_few_runs_counts(monkeypatch):
    """The first one only warms up; figures are operations and bytes over the least time."""
    stamps = iter(at * 10**9 for at in (0, 5, 10, 12, 20, 29, 30, 34, 40, 47))
    monkeypatch.setattr(measure, "SYSTEM", measure.SYSTEM._replace(monotonic_ns=stamps.__next__))
    runs = []

    assert measure._best(lambda: runs.append(1)) == 2.0
    assert len(runs) == 6


@pytest.mark.skipif(importlib.util.find_spec("numpy") is None, reason="needs NumPy")
def test_this_processor_has_a_ridge():
    """A product of matrices and a sum, for real."""
    device = measure.measure_cpu()

    assert device.peak("bf16") > 1e9
    assert device.bandwidth > 1e8
    assert "measured here now" in device.source
