"""The server's counters: which are read, and what their growth says."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_trace.bench.counters import Counters, parse, served_before

VLLM = Path(__file__).parents[1] / "dashboards" / "vllm-0.32-metrics.txt"
OURS = """\
llm_trace_usage_input_tokens_total{gen_ai_request_model="m"} 100
llm_trace_usage_cache_read_input_tokens_total{gen_ai_request_model="m"} 40
llm_trace_requests_total{llm_trace_outcome="ok"} 3
llm_trace_requests_total{llm_trace_outcome="cancelled"} 1
llm_trace_ttft_requests_total{llm_trace_ttft_band="0.1"} 2
llm_trace_ttft_phase_seconds_total{llm_trace_phase="queue_wait",llm_trace_ttft_band="0.1"} 0.5
llm_trace_ttft_phase_seconds_total{llm_trace_phase="queue_wait",llm_trace_ttft_band="1"} 0.25
llm_trace_ttft_phase_seconds_total{llm_trace_phase="prefill",llm_trace_ttft_band="1"} 0.125
"""


def test_a_recorded_page_of_vllm():
    """Lookups and hits in tokens, finished requests, and the engine's own two phases."""
    counters = parse(VLLM.read_text())

    assert counters.hits == ("vllm", 21290, 4096)
    assert counters.requests == 27
    assert counters.mean_phases == (
        "vllm",
        {
            "queue_wait": pytest.approx(14.100192557 / 27),
            "prefill": pytest.approx(0.886547214 / 27),
        },
    )


def test_our_own_page_in_front_of_any_engine():
    """Sums over all labels; every phase of the ledger."""
    counters = parse(OURS)

    assert counters.hits == ("llm_trace", 100, 40)
    assert counters.requests == 4
    assert counters.mean_phases == ("llm_trace", {"queue_wait": 0.375, "prefill": 0.0625})


def test_where_both_are_the_engine_is_believed_and_our_phases_are_finer():
    """As on a vLLM server with our middleware."""
    counters = parse(VLLM.read_text() + OURS)

    assert counters.hits[0] == "vllm"
    assert counters.mean_phases[0] == "llm_trace"


def test_only_what_grew_counts():
    """And a counter that fell back was started anew: it says nothing."""
    before, after = Counters({"a": 5, "b": 9}, {"x": 1}), Counters({"a": 7, "b": 2}, {"x": 1.5})

    assert after.since(before) == Counters({"a": 2}, {"x": 0.5})


@pytest.mark.parametrize(
    ("page", "told"),
    [
        (None, None),
        (OURS, True),
        (OURS.replace(" 100", " 0"), False),
        ("llm_trace_requests_total 4\n", None),
    ],
)
def test_whether_the_server_had_worked_before(page, told):
    """A cold start is one of which the counters say so; silence is no evidence."""
    assert served_before(page and parse(page)) is told


def test_what_is_no_number_is_not_counted():
    """One NaN would spoil every sum."""
    assert parse('llm_trace_requests_total{a="1"} NaN\nllm_trace_requests_total 4\n').requests == 4


@pytest.mark.parametrize("page", ["", "<html>", "up 1\n", "llm_trace_requests_total many\n", "{}"])
def test_a_page_that_is_none_gives_nothing(page):
    """Nor does one without our counters."""
    assert parse(page) is None


@given(st.text(max_size=200) | st.text('llm_trace_requests_total{}"=, 0.1eN#\n', max_size=80))
def test_any_page_is_counters_or_nothing(page):
    """Whatever answers at that address."""
    assert parse(page) is None or parse(page).totals
