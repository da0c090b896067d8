"""Names: one table, both translations of it, and nothing said twice."""

import re
from collections import Counter
from itertools import pairwise

import pytest
from opentelemetry.exporter.prometheus._mapping import (
    map_unit,
    sanitize_attribute,
    sanitize_full_name,
)

from llm_trace import semconv as s
from llm_trace.observers.metrics import label

ATTRIBUTES = {
    name: value
    for name, value in vars(s).items()
    if isinstance(value, str)
    and re.fullmatch(r"(gen_ai|llm_trace|http|url|server|error)\..+", value)
}


def official(metric):
    """What the OpenTelemetry exporter calls a metric, in the text format."""
    name = sanitize_full_name(metric.name)
    unit = map_unit(metric.unit)
    if unit and not name.endswith(f"_{unit}"):
        name = f"{name}_{unit}"
    return f"{name}_total" if metric.kind == "counter" else name


@pytest.mark.parametrize("metric", s.METRICS, ids=lambda m: m.name)
def test_a_prometheus_name_is_the_official_translation(metric):
    """One dashboard serves a scrape and OTLP alike."""
    assert official(metric) == metric.prometheus


@pytest.mark.parametrize("metric", s.METRICS, ids=lambda m: m.name)
def test_a_label_is_the_official_translation(metric):
    """Labels are the attributes' names as the exporter writes them."""
    assert [sanitize_attribute(n) for n in metric.labels] == [label(n) for n in metric.labels]


@pytest.mark.parametrize("metric", s.METRICS, ids=lambda m: m.name)
def test_a_row_of_the_table_is_whole(metric):
    """A kind that we can make, a sentence, each label once, buckets for histograms only."""
    assert metric.kind in {"histogram", "counter", "updowncounter", "gauge"}
    assert metric.help.endswith(".")
    assert len(metric.labels) == len(set(metric.labels))
    assert (metric.kind == "histogram") == bool(metric.buckets)
    assert set(metric.labels) <= set(ATTRIBUTES.values())


def test_no_name_is_used_twice():
    """Metrics, attributes and their Prometheus forms are each unique."""
    names = [*(m.name for m in s.METRICS), *(m.prometheus for m in s.METRICS)]
    names += ATTRIBUTES.values()

    assert [] == [name for name, n in Counter(names).items() if n > 1]


def test_every_metric_is_in_the_table():
    """A row that is written is a metric that exists."""
    rows = [value for value in vars(s).values() if isinstance(value, s.Metric)]

    assert rows == list(s.METRICS)


@pytest.mark.parametrize("buckets", [s.DURATION_BUCKETS, s.WAIT_BUCKETS, s.TOKEN_BUCKETS])
def test_buckets_rise_in_bounded_steps(buckets):
    """Neighbours are at most five times apart, and nothing documented falls into +Inf."""
    steps = [b / a for a, b in pairwise(buckets)]

    assert min(steps) > 1
    assert max(steps) <= 5
    assert buckets[-1] >= 80


DOCUMENTED = {
    s.WAIT_BUCKETS: "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10 20 40 "
    "80 160 640 2560",
    s.TOKEN_BUCKETS: "0.001 0.0025 0.005 0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1 2.5 "
    "5 7.5 10 20 40 80",
    s.DURATION_BUCKETS: "0.01 0.02 0.04 0.08 0.16 0.32 0.64 1.28 2.56 5.12 10.24 20.48 40.96 81.92 "
    "163.84 327.68 655.36",
}


def test_the_buckets_are_the_documented_ones():
    """Dashboards and alerts are built on these very bounds."""
    shown = {buckets: " ".join(f"{bound:g}" for bound in buckets) for buckets in DOCUMENTED}

    assert DOCUMENTED == shown


def test_bands_and_their_labels_go_together():
    """A band's label is its bound as Prometheus writes `le`."""
    assert [float(text) for text in s.TTFT_BAND_LABELS] == list(s.TTFT_BANDS)
    assert sorted(s.TTFT_BANDS) == list(s.TTFT_BANDS)


def test_phases_are_unique_and_other_is_none_of_them():
    """`other` is a label for what is not declared, never a phase."""
    assert len(set(s.PHASES)) == len(s.PHASES)
    assert s.OTHER not in s.PHASES
