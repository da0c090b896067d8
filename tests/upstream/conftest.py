"""Calls are watched for the time of one test."""

from __future__ import annotations

import httpx
import httpx2
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


@pytest.fixture(params=[httpx, httpx2], ids=["httpx", "httpx2"])
def module(request):
    """The library."""
    return request.param
