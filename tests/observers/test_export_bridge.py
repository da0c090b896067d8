"""OTLP metrics from the Prometheus accumulators: the same names, labels, numbers and exemplars."""

import pytest
from prometheus_client.metrics_core import Metric as Family

from llm_trace import semconv as s
from llm_trace.observers.bridge import Distribution, Growth, Number, exemplar_ids, translate
from llm_trace.observers.metrics import Instruments

BASE = ("chat", "vllm", "m")
EXEMPLAR = {"trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": "b7ad6b7169203331"}


@pytest.fixture
def instruments():
    """Accumulators of their own."""
    return Instruments()


def points(instruments, metric):
    """The points of one metric."""
    return dict(translate(instruments.collect()))[metric]


def test_a_counter_is_a_number_under_attribute_names(instruments):
    """Labels get their dots back, and one that is empty is absent."""
    instruments.child(s.REQUESTS, (*BASE, "ok", "")).inc(3)

    assert points(instruments, s.REQUESTS) == [
        Number(
            {
                s.OPERATION_NAME: "chat",
                s.PROVIDER_NAME: "vllm",
                s.REQUEST_MODEL: "m",
                s.OUTCOME: "ok",
            },
            3.0,
        )
    ]


def test_a_histogram_is_counts_between_bounds(instruments):
    """Cumulative buckets become counts of their own; the last bound is left to infinity."""
    for state, seconds in (("warm", 0.015), ("warm", 3000.0), ("cold", 0.0004)):
        instruments.child(s.TIME_TO_FIRST_TOKEN, (*BASE, state)).observe(seconds, EXEMPLAR)
    cold, warm = sorted(
        points(instruments, s.TIME_TO_FIRST_TOKEN), key=lambda p: p.attributes[s.START_STATE]
    )

    assert isinstance(warm, Distribution)
    assert warm.bounds == s.WAIT_BUCKETS
    assert len(warm.counts) == len(warm.bounds) + 1
    assert [place for place, n in enumerate(warm.counts) if n] == [3, len(warm.bounds)]
    assert (sum(warm.counts), warm.total) == (2, 3000.015)
    assert (cold.counts[0], sum(cold.counts)) == (1, 1)
    assert [exemplar_ids(x) for x in cold.exemplars] == [
        (0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331)
    ]


def test_exemplars_of_counters_come_along(instruments):
    """Where one was given."""
    instruments.child(s.REQUESTS, (*BASE, "ok", "finish")).inc(1, EXEMPLAR)
    (point,) = points(instruments, s.REQUESTS)

    assert [x.labels for x in point.exemplars] == [EXEMPLAR]


def test_strangers_and_empty_families_are_left_out(instruments):
    """Only what `semconv` names and what has been sampled."""
    translated = dict(translate([Family("process_cpu_seconds", "h", "counter")]))

    assert translated == {}
    assert s.TIME_TO_FIRST_TOKEN not in dict(translate(instruments.collect()))
    assert s.REQUESTS_ACTIVE in dict(translate(instruments.collect()))


def test_growth_is_what_came_since_the_last_export(instruments):
    """All of it at first, then the difference; what did not grow is left out."""
    growth = Growth()

    def grown(metric, since=0.0):
        return growth.of(metric, points(instruments, metric), since)

    requests = instruments.child(s.REQUESTS, (*BASE, "ok", "finish"))
    ttft = instruments.child(s.TIME_TO_FIRST_TOKEN, (*BASE, "warm"))
    requests.inc(3)
    ttft.observe(0.015, EXEMPLAR)
    assert [point.value for point in grown(s.REQUESTS)] == [3]
    assert [(sum(p.counts), p.total, len(p.exemplars)) for p in grown(s.TIME_TO_FIRST_TOKEN)] == [
        (1, 0.015, 1)
    ]
    assert grown(s.REQUESTS) == grown(s.TIME_TO_FIRST_TOKEN) == []

    requests.inc(2)
    instruments.child(s.REQUESTS, (*BASE, "error", "decode")).inc()
    ttft.observe(3000.0)
    assert sorted(point.value for point in grown(s.REQUESTS)) == [1, 2]
    (point,) = grown(s.TIME_TO_FIRST_TOKEN, since=2.0**40)
    assert [place for place, n in enumerate(point.counts) if n] == [len(point.bounds)]
    assert (point.total, point.exemplars) == (3000.0, ())
