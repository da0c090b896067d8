"""Thresholds: how they are written, and when they fail."""

import pytest
from bench_results import cell, results
from hypothesis import given
from hypothesis import strategies as st

from llm_trace.bench.errors import BenchError
from llm_trace.bench.gates import Check, check, parse

CELLS = (
    cell(1, 100, "new", ttft=(0.1, 0.2, 0.3)),
    cell(1, 100, "cached", ttft=(0.01, 0.02, 0.03)),
    cell(8, 100, "new", ttft=(0.4, 0.5, 0.6), failed=1),
)


@pytest.mark.parametrize(
    ("rule", "failed", "value"),
    [
        ("ttft_median > 400ms", True, 0.5),
        ("ttft_median@concurrency=1 > 0.4s", False, 0.2),
        ("ttft_median@prefix=new@concurrency=1>=200 ms", True, 0.2),
        ("ttft_median@length=100@prefix=cached > 20ms", False, 0.02),
        ("ttft_median@prefix=cached > 30000us", False, 0.02),
        ("failed > 0", True, 0.25),
        ("failed > 30%", False, 0.25),
        ("failed@concurrency=1 > 0%", False, 0.0),
        ("requests_per_second < 5", True, 3.0),
        ("requests_per_second <= 2.5", False, 3.0),
        ("unconfirmed > 0", False, 0.0),
    ],
)
def test_a_threshold_looks_at_the_worst_cell(rule, failed, value):
    """The largest for `>`, the smallest for `<`, among the cells that it names."""
    (checked,) = check([parse(rule)], results(*CELLS))

    assert checked == Check(rule, failed=failed, value=value and pytest.approx(value))


@pytest.mark.parametrize(
    "rule",
    [
        "ttft_p99 > 9s",
        "ttft_median@length=999 > 9s",
        "goodput < 1%",
        "tpot_median > 9s",
        "prefill_per_token > 1s",
    ],
)
def test_what_was_not_measured_fails(rule):
    """A typo, too few samples, an endpoint that counts nothing: silence is no success."""
    assert check([parse(rule)], results(*CELLS)) == [Check(rule, failed=True, value=None)]


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        ("", "no threshold"),
        ("ttft_p95", "no threshold"),
        ("ttft_p95 > fast", "no threshold"),
        ("ttft_p95 = 1s", "no threshold"),
        ("ttft_p95 > 1 hour", "no threshold"),
        ("speed > 1", "speed is unknown; known are ttft_mean"),
        ("ttft_p95@model=x > 1", "@model is unknown; known are length"),
    ],
)
def test_what_is_no_threshold_is_told(rule, fault):
    """Before anything is sent."""
    with pytest.raises(BenchError, match=fault):
        parse(rule)


@given(st.text(max_size=40) | st.text("ttft_p95@=<> 0.1ms%", max_size=30))
def test_any_text_is_a_threshold_or_an_error(text):
    """And nothing else happens."""
    try:
        gate = parse(text)
    except BenchError:
        return
    assert gate.limit >= 0
