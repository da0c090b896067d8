"""What the tests of the comparison share with those of the boards: a real Prometheus."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS / "dashboards"), str(TESTS / "end_to_end")]

from prometheus_programs import find_programs  # noqa: E402


@pytest.fixture(scope="session")
def prometheus_programs():
    """The directory that holds `prometheus` and `promtool`."""
    found = find_programs(TESTS.parent / ".cache" / "prometheus")
    if found is None:
        pytest.skip("there is no Prometheus: install Debian's package `prometheus`")
    return found
