"""The budgets, held as ratios to the peers, in a process of its own: no coverage, no other tests.

Absolute times belong to a machine; they are in the report of `make bench`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]

pytestmark = pytest.mark.bench


@pytest.fixture(scope="module")
def results():
    """A short run of the whole benchmark."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks", "--json", "--seconds", "6"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        timeout=120,
        check=False,
    )
    return json.loads(done.stdout)


def test_disabled_app_costs_nothing(results):
    """`instrument()` when disabled gives the app back: the peers' first percent is more."""
    cost = results["added"]["disabled"]["request_us"]

    assert cost < 0.01 * results["added"]["otel_one_span"]["request_us"]


def test_disabled_middleware_costs_next_to_nothing(results):
    """`TraceMiddleware` when disabled costs under two percent of one span."""
    cost = results["added"]["disabled_middleware"]["request_us"]

    assert cost < 0.02 * results["added"]["otel_one_span"]["request_us"]


def test_token_chunk_costs_no_more_than_a_peers(results):
    """A token that is recognised and timed costs no more than one that a peer passes on."""
    cost = results["added"]["full"]["chunk_us"]

    assert cost <= results["added"]["otel_one_span"]["chunk_us"]


def test_whole_trace_costs_no_more_than_one_span(results):
    """Root, phase spans and every metric cost no more than OpenTelemetry's one span."""
    cost = results["added"]["full"]["request_us"]

    assert cost <= results["added"]["otel_one_span"]["request_us"]


def test_metrics_cost_no_more_than_a_peers(results):
    """Every metric of the ledger costs no more than prometheus-fastapi-instrumentator's few."""
    cost = results["added"]["metrics_only"]["request_us"]

    assert cost <= results["added"]["prometheus"]["request_us"]


def test_request_in_flight_fits_its_memory(results):
    """A request in the middle of its stream holds at most 4 KiB."""
    assert results["memory_bytes"]["full"] <= 4096


@pytest.mark.parametrize("running", [1, 32, 256])
@pytest.mark.parametrize("process", ["api", "core"])
def test_an_engine_step_fits_its_time(results, process, running):
    """10 us, and 0.2 us for each running request, in the API process and in EngineCore."""
    assert results["step_us"][str(running)][process] <= 10 + 0.2 * running
