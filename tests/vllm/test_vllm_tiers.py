"""How much an engine tells is decided by what it offers, and only by that."""

from types import SimpleNamespace

import pytest
from vllm_doubles import Processor

from llm_trace_vllm.tiers import ENGINE_EVENTS, FINISHED_STATS, STATS_SWEEP, tier_of


@pytest.mark.parametrize(
    ("processor", "tier"),
    [
        (Processor(), ENGINE_EVENTS),
        (SimpleNamespace(add_request=print, request_states={}), STATS_SWEEP),
        (SimpleNamespace(add_request=print, process_outputs=None), FINISHED_STATS),
        (SimpleNamespace(), FINISHED_STATS),
        (None, FINISHED_STATS),
    ],
    ids=["all of it", "states", "nothing to call", "nothing", "no processor"],
)
def test_the_best_tier_that_the_surfaces_allow(processor, tier):
    """Missing surfaces mean less detail, never a failure."""
    assert tier_of(processor) == tier


def test_without_events_the_states_are_next():
    """A wrap that failed is not tried again."""
    assert tier_of(Processor(), events=False) == STATS_SWEEP
