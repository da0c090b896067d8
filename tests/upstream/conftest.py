"""Calls are watched for the time of one test."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import pytest

from llm_trace.core import faults
from llm_trace.testing import FakeClock
from llm_trace.upstream import switch_off, switch_on


@pytest.fixture
def clock():
    """Time, standing still."""
    return FakeClock()


@pytest.fixture
def _watching():
    """The clients are watched, and nothing was dropped before."""
    faults.dropped.clear()
    switch_on()
    yield
    switch_off()


@pytest.fixture(params=[name for name in ("httpx", "httpx2") if find_spec(name)])
def module(request):
    """The library, where it is installed."""
    return import_module(request.param)
