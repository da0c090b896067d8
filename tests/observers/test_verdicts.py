"""Verdicts as metrics and as the log line of slow requests."""

from __future__ import annotations

import logging

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics

from llm_trace import semconv as s
from llm_trace.core.identity import TraceIdentity
from llm_trace.core.verdict import Ratios, Verdict
from llm_trace.observers.metrics import instruments
from llm_trace.observers.slow_log import SlowLog
from llm_trace.observers.verdicts import VerdictObserver

MS = 1_000_000
BASE = ("chat", "vllm", "m")


class Finished:
    """A record, as far as these observers look at it."""

    operation = "chat"
    model = "m"
    outcome = "ok"
    identity = TraceIdentity(0xABC, 1)

    def __init__(self, ttft=300 * MS, duration=500 * MS, finished=5_000 * MS):
        self.ttft = ttft
        self.duration = duration
        self.finished = finished


def verdict(waited=300 * MS, ratios=Ratios()):  # noqa: B008 - immutable
    """A verdict on it."""
    return Verdict(
        cause="queue_slots",
        confidence="high",
        tell=lambda: 'it queued, "long"\nand so on',
        next_check="Look.",
        phase="queue_wait",
        cost=200 * MS,
        waited=waited,
        ratios=ratios,
    )


@pytest.fixture
def registry():
    """A registry of the test's own."""
    return CollectorRegistry()


def count(registry, name, **labels):
    """A sample's value."""
    base = {
        "gen_ai_operation_name": "chat",
        "gen_ai_provider_name": "vllm",
        "gen_ai_request_model": "m",
    }
    return registry.get_sample_value(name, {**base, **labels})


def test_verdicts_are_counted_by_cause_and_band(registry):
    """The band is that of the wait which was judged."""
    observer = VerdictObserver(instruments(registry), lambda _: verdict(), lambda _: BASE)
    observer.observe(Finished())
    observer.observe(Finished())

    labels = {"llm_trace_verdict": "queue_slots", "llm_trace_ttft_band": "0.5"}
    assert count(registry, "llm_trace_verdicts_total", **labels) == 2


def test_ratios_are_sampled_where_they_are_known(registry):
    """A missing ratio leaves no sample."""
    said = verdict(ratios=Ratios(prefill=2.5))
    VerdictObserver(instruments(registry), lambda _: said, lambda _: BASE).observe(Finished())

    assert count(registry, "llm_trace_prefill_floor_ratio_sum") == 2.5
    assert f'trace_id="{0xABC:032x}"' in openmetrics(registry).decode()
    assert count(registry, "llm_trace_decode_floor_ratio_count") is None


def test_a_request_without_a_verdict_is_not_counted(registry):
    """Nor are its labels asked for."""
    VerdictObserver(instruments(registry), lambda _: None, pytest.fail).observe(Finished())

    assert count(registry, "llm_trace_verdicts_total") is None


def test_a_slow_request_is_one_line_of_fields(caplog):
    """Trace, times, verdict; text in quotes, line breaks gone."""
    SlowLog(0.3, lambda _: verdict()).observe(Finished())

    [line] = caplog.records
    assert line.getMessage() == (
        "llm_trace: slow request trace_id=00000000000000000000000000000abc "
        "gen_ai.request.model=m llm_trace.outcome=ok llm_trace.ttft=0.3 duration=0.5 "
        "llm_trace.verdict=queue_slots llm_trace.verdict.confidence=high "
        'llm_trace.verdict.reason="it queued, \\"long\\"?and so on" '
        "llm_trace.verdict.next_check=Look."
    )
    assert (line.name, line.levelno) == ("llm_trace", logging.WARNING)
    assert line.llm_trace[s.TTFT] == 0.3


@pytest.mark.parametrize(
    ("record", "slow"),
    [
        (Finished(ttft=299 * MS), False),
        (Finished(ttft=None, duration=300 * MS), True),
        (Finished(ttft=None, duration=299 * MS), False),
    ],
)
def test_what_is_slow_is_the_wait_for_the_first_token_or_for_the_end(caplog, record, slow):
    """A request that never had a token waited until its end."""
    SlowLog(0.3, lambda _: verdict()).observe(record)

    assert len(caplog.records) == slow


def test_a_burst_of_slow_requests_is_one_line_a_second(caplog):
    """Those between are counted in the next line."""
    log = SlowLog(0.3, lambda _: verdict())
    for finished in (5_000, 5_001, 5_999, 6_000):
        log.observe(Finished(finished=finished * MS))

    assert len(caplog.records) == 2
    assert "not_logged=2" in caplog.records[1].getMessage()
