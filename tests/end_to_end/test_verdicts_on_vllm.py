"""Causes planted in real vLLM: each is named, and a healthy load is blamed for nothing.

Those that need a server of their own (one slot, no prefix cache, few blocks) are planted by the
program `planted.py`.
"""

from __future__ import annotations

import pytest
from planted import HEALTHY, NAMED, REQUESTS, USUAL, mixed, roots_of

pytestmark = pytest.mark.vllm

HEALTHY_REQUESTS = 100


@pytest.mark.parametrize("cause", USUAL, ids=lambda cause: cause.plant.__name__)
def test_a_planted_cause_is_named(vllm, cause):
    """In at least 19 of 20 requests."""
    found = roots_of(vllm, cause.plant(vllm, REQUESTS))

    wrong = found.other_than(*cause.verdicts)
    assert len(found.roots) == REQUESTS
    assert len(wrong) <= REQUESTS - NAMED, wrong


def test_a_healthy_load_is_blamed_for_nothing(vllm):
    """Not one of a hundred requests, of every shape, waits for something that is not there."""
    found = roots_of(vllm, mixed(vllm, HEALTHY_REQUESTS))

    assert found.other_than(*HEALTHY) == []
