"""What every test of the vLLM integration needs."""

from weakref import WeakSet

import pytest

from llm_trace.core import engines


@pytest.fixture(autouse=True)
def no_engines(monkeypatch):
    """No engine of another test is on the metrics page."""
    monkeypatch.setattr(engines, "joined", WeakSet())
