"""What the tests of boards and alerts share: a real promtool and a real Prometheus with data."""

from __future__ import annotations

import sys
from itertools import repeat
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "end_to_end"))  # its helpers start programs, as ours do

from board_prometheus import dcgm_pages, holding, vllm_pages  # noqa: E402
from board_traffic import REQUESTS, pages  # noqa: E402
from prometheus_programs import find_programs  # noqa: E402

ROUNDS = 41


@pytest.fixture(scope="session")
def prometheus_programs():
    """The directory that holds `prometheus` and `promtool`."""
    found = find_programs(HERE.parents[1] / ".cache" / "prometheus")
    if found is None:
        pytest.skip("there is no promtool: install Debian's package `prometheus`")
    return found


@pytest.fixture(scope="session")
def busy(prometheus_programs, tmp_path_factory):
    """Ask a Prometheus that scraped 20 minutes of every kind of request, rules included."""
    folder = tmp_path_factory.mktemp("busy")
    data = {
        "app": pages(repeat(REQUESTS, ROUNDS)),
        "vllm": vllm_pages(ROUNDS),
        "dcgm": dcgm_pages(ROUNDS),
    }
    with holding(folder, prometheus_programs, **data) as ask:
        yield ask


@pytest.fixture(scope="session", params=[0, 1, 2], ids="{}_requests".format)
def idle(request, prometheus_programs, tmp_path_factory):
    """Ask a Prometheus that scraped an app with so many requests in all, and an idle vLLM."""
    folder = tmp_path_factory.mktemp("idle")
    served = [(one,) for one in REQUESTS[: request.param]]
    rounds = [(), *served, *repeat((), ROUNDS - 1 - len(served))]
    data = {"app": pages(rounds), "vllm": repeat(next(vllm_pages(1)), ROUNDS)}
    with holding(folder, prometheus_programs, **data) as ask:
        yield ask
