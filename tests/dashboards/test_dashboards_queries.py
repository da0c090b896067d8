"""Every query of every board and rule, on a real Prometheus that holds the app's own pages."""

from __future__ import annotations

import math
import re

import pytest
from board_files import PANELS, QUERIES, filled, rules

from llm_trace import semconv as s

pytestmark = pytest.mark.services

PHASE = s.PHASE.replace(".", "_")

LEGEND_LABELS = re.compile(r"\{\{(\w+)\}\}")
TRACEQL = "TraceQL: needs Tempo, which no package registry has"
NOT_ASKED = {panel["title"]: TRACEQL for _, panel in PANELS if panel["type"] == "table"}
"""Panels without a PromQL query: test_dashboards_traceql reads those."""


def asked(board, title):
    """The first query of the panel of that title."""
    return next(q for q in QUERIES if q.board == board and q.panel["title"] == title)


def finite(samples):
    """Whether every value of `samples` can be shown."""
    return all(math.isfinite(value) for _, value in samples)


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_every_panel_shows_data_of_a_busy_app(busy, query):
    """Each query of each panel returns finite samples, with the labels of its legend."""
    samples = busy(query.expr)
    named = LEGEND_LABELS.findall(query.target["legendFormat"])

    assert samples
    assert finite(samples)
    assert all(labels.get(name) for labels, _ in samples for name in named)


def test_the_panels_that_are_not_asked_here_are_listed():
    """Every panel has a query that these tests run, or is listed with a reason."""
    asked_here = {query.panel["title"] for query in QUERIES}

    assert {panel["title"] for _, panel in PANELS} - asked_here == set(NOT_ASKED)


@pytest.mark.parametrize("rule", rules("rules.yaml"), ids=lambda rule: rule["record"])
def test_every_recording_rule_records(busy, rule):
    """Each recording rule returns finite samples on the pages of a busy app."""
    samples = busy(rule["expr"])

    assert samples
    assert finite(samples)


@pytest.mark.parametrize("rule", rules("alerts.yaml"), ids=lambda rule: rule["alert"])
def test_every_alert_can_be_evaluated(busy, rule):
    """Each alert's expression runs on the pages of a busy app, and gives numbers if anything."""
    assert finite(busy(rule["expr"]))


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_no_panel_shows_nan_with_hardly_any_traffic(idle, query):
    """With 0, 1 and 2 requests in all a panel shows numbers or nothing: never NaN, never Inf."""
    for back in (0, 18 * 60):
        assert finite(idle(query.expr, back))


def test_the_stacked_phases_sum_to_the_mean_ttft(busy):
    """The parts of the stack panel add up to the mean that the TTFT histogram gives."""
    parts = busy(asked("llm-trace-ttft", "Mean TTFT by phase").expr)
    name = s.TIME_TO_FIRST_TOKEN.prometheus
    ((_, whole),) = busy(f"sum(increase({name}_sum[2m])) / sum(increase({name}_count[2m]))")

    assert whole == pytest.approx(sum(value for _, value in parts), rel=1e-6)


def test_the_slow_stack_shows_what_the_tail_is_made_of(busy):
    """Of the slow requests one loaded a model and one queued: that is what their stack shows."""
    parts = busy(asked("llm-trace-ttft", "Mean TTFT by phase, slow requests only").expr)
    seconds = {labels[PHASE]: value for labels, value in parts}

    worst = sorted(seconds, key=seconds.get)[-2:]

    assert [s.QUEUE_WAIT, s.MODEL_LOAD] == worst


def test_shares_of_phases_sum_to_one(busy):
    """The shares of all phases are the whole."""
    shares = busy(asked("llm-trace-ttft", "Share of each phase").expr)

    assert 1 == pytest.approx(sum(value for _, value in shares))


def test_steady_traffic_changed_nothing(busy):
    """Where each half minute is like the one before, no phase's bar has a length."""
    bars = busy(asked("llm-trace-ttft", "What changed").expr)

    assert all(abs(value) < 1e-6 for _, value in bars)


def test_the_blamed_phase_is_the_one_that_slow_requests_waited_in(busy):
    """The rule that alerts join blames the model's load, where most slow seconds went."""
    samples = busy(f"topk(1, {filled('llm_trace:ttft_blame:share_rate1h')})")

    assert [s.MODEL_LOAD] == [labels[PHASE] for labels, _ in samples]
