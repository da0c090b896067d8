"""An outside client's numbers beside ours: pairs, percentiles, and what counts as agreement."""

from types import SimpleNamespace

import pytest

from llm_trace import semconv as s
from tests.outside_client.compare import (
    Held,
    Pair,
    Row,
    Served,
    bucket_of,
    compare,
    hold,
    pair,
    percentile,
    served,
)

MS = 10**6


def span(name, span_id, parent_id="", start=0, end=0, **attributes):
    """A span as a receiver has it."""
    return SimpleNamespace(
        name=name,
        span_id=span_id,
        parent_id=parent_id,
        start=start,
        end=end,
        attributes=attributes,
    )


def root(span_id, **more):
    """The root of a streamed answer of five tokens."""
    told = {s.RESPONSE_ID: f"chatcmpl-{span_id}", s.TTFT: 0.25, s.USAGE_OUTPUT_TOKENS: 5}
    return span("chat tiny", span_id, start=100 * MS, **{**told, **more})


def record(request_id, phase="profiling", **more):
    """A request as aiperf exports it, begun at 90 ms."""
    about = {"x_request_id": request_id, "benchmark_phase": phase, "was_cancelled": False}
    return {
        "metadata": {**about, "request_start_ns": 90 * MS, **more},
        "metrics": {
            "time_to_first_token": {"value": 261.0},
            "inter_token_latency": {"value": 10.5},
        },
    }


def test_a_request_is_served_with_its_decode():
    """Time per token is the decode span's, by the tokens after the first."""
    spans = [span("decode", "d", "a", 350 * MS, 390 * MS), root("a"), root("no decode")]

    assert served(spans) == {"chatcmpl-a": Served(100 * MS, 250.0, 10.0)}


def test_requests_are_paired_by_their_id():
    """Warm-up and cancelled ones are left out; the way there is on the host's wall clock."""
    ours = {"chatcmpl-a": Served(100 * MS, 250.0, 10.0)}
    records = [record("a"), record("w", "warmup"), record("c", was_cancelled=True)]

    assert pair(records, ours) == [Pair(261.0, 10.5, 10.0, ours["chatcmpl-a"])]


def test_a_request_that_we_did_not_see_is_an_error():
    """Nothing may be missing from one side."""
    with pytest.raises(LookupError):
        pair([record("stranger")], {})


def test_the_way_there_explains():
    """A client counts from before its connection, we from the arrival."""
    pairs = [Pair(261.0, 10.5, 10.0, Served(100 * MS, 250.0, 10.0))] * 3
    rows = compare(pairs)

    assert [row.percentile for row in rows] == [0.5, 0.9, 0.99] * 2
    assert rows[0] == Row("time to first token", 0.5, 261.0, 250.0, 260.0)
    assert rows[3] == Row("time per output token", 0.5, 10.5, 10.0, 10.0)
    assert all(row.agrees for row in rows)


@pytest.mark.parametrize(
    ("client", "explained", "agrees"),
    [(10.0, 12.0, True), (10.0, 12.1, False), (100.0, 95.0, True), (100.0, 94.9, False)],
)
def test_agreement_is_five_percent_or_two_milliseconds(client, explained, agrees):
    """Whichever is more."""
    assert Row("x", 0.5, client, 0.0, explained).agrees is agrees


def test_percentiles_are_interpolated():
    """As NumPy does, with which the client computes its own."""
    values = [4.0, 1.0, 3.0, 2.0]

    assert [percentile(values, p) for p in (0.0, 0.5, 0.9, 1.0)] == pytest.approx([1, 2.5, 3.7, 4])
    assert percentile([7.0], 0.99) == 7.0


def test_a_histogram_has_its_percentile_in_a_bucket():
    """Cumulative counts, as Prometheus shows them."""
    buckets = {0.1: 2.0, 0.2: 9.0, float("inf"): 10.0}

    assert bucket_of(buckets, 0.5) == (0.1, 0.2)
    assert bucket_of(buckets, 0.99) == (0.2, float("inf"))


def test_a_percentile_may_lie_in_the_bucket_or_beside_it():
    """A histogram knows no more than between which bounds it is."""
    rows = hold("x", [150.0], {0.1: 0.0, 0.2: 10.0, float("inf"): 10.0})

    assert rows == [Held("x", p, 150.0, 100.0, 200.0) for p in (0.5, 0.9, 0.99)]
    agree = [Held("x", 0.5, client, 100.0, 200.0).agrees for client in (95.3, 95.1, 209, 211)]
    assert agree == [True, False, True, False]
