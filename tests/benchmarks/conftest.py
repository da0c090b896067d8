"""The marker `bench`: budgets are held by `make bench`, or by name, and not on every test run.

What a run measures depends on who else uses the machine, which a test of behaviour must not.
"""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", "bench: measures CPU time; run with -m bench")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave measurements out unless `-m` or the command line names them."""
    if "bench" in config.option.markexpr or any("benchmarks" in arg for arg in config.args):
        return
    left_out = [item for item in items if item.get_closest_marker("bench")]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)
