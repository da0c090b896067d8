"""Whether a prefix was new or cached: only the server's word counts."""

import pytest

from llm_trace.bench.counters import Counters
from llm_trace.bench.plan import Cell
from llm_trace.bench.reuse import judge, usage_tells
from llm_trace.bench.sample import Sample
from llm_trace.bench.sweep import Measured


def measured(prefix, *cached, looked_up=None, hits=0.0, outcome="ok"):
    """A cell of prompts of 100 tokens, each with what usage says of the cache."""
    samples = [
        Sample(started=0, ended=1, outcome=outcome, prompt_tokens=100, cached_tokens=one)
        for one in cached
    ]
    names = ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total")
    counted = (
        None if looked_up is None else Counters(dict(zip(names, (looked_up, hits), strict=True)))
    )
    return Measured(Cell(1, 100, prefix), samples, counted)


@pytest.mark.parametrize(
    ("prefix", "cached", "verdict", "share"),
    [
        ("new", (0, 0), "confirmed", 0.0),
        ("new", (16, 16), "confirmed", 0.16),
        ("new", (96, 0), "refuted", 0.48),
        ("cached", (96, 96), "confirmed", 0.96),
        ("cached", (64, 64), "confirmed", 0.64),
        ("cached", (0, 0), "refuted", 0.0),
        ("cached", (96, None), "refuted", 0.48),
    ],
)
def test_usage_of_each_answer(prefix, cached, verdict, share):
    """Where the server counts cached tokens at all, an absent count is none."""
    found = judge(measured(prefix, *cached), usage_tells=True)

    assert (found.verdict, found.evidence, found.share) == (verdict, "usage", share)


@pytest.mark.parametrize(
    ("prefix", "hits", "verdict"), [("new", 0, "confirmed"), ("cached", 0, "refuted")]
)
def test_counters_where_usage_says_nothing(prefix, hits, verdict):
    """The engine's own."""
    found = judge(measured(prefix, None, None, looked_up=200.0, hits=hits), usage_tells=False)

    assert (found.verdict, found.evidence, found.share) == (verdict, "vllm", 0.0)


def test_somebody_elses_requests_confirm_nothing():
    """The server looked up more tokens than we sent."""
    found = judge(measured("cached", None, looked_up=500.0, hits=450.0), usage_tells=False)

    assert (found.verdict, found.share) == ("unconfirmed", None)
    assert "looked up 500 tokens and was sent 100" in found.note


@pytest.mark.parametrize(
    ("cell", "note"),
    [
        (measured("cached", None), "the server shows no hit counters"),
        (measured("cached", 96, outcome="failed"), "no request was answered"),
    ],
)
def test_without_evidence_a_cell_is_unconfirmed(cell, note):
    """It is never assumed."""
    found = judge(cell, usage_tells=False)

    assert found == ("unconfirmed", None, None, note)


def test_a_server_tells_by_usage_when_one_answer_did():
    """A count of 0 is often left out."""
    assert not usage_tells(measured("new", None, None).samples)
    assert usage_tells(measured("new", None, 0).samples)
