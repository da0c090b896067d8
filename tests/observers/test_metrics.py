"""The instruments: one set a registry, every metric of the table, nothing registered twice."""

import gc
import importlib
from collections import Counter as Tally

import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.exposition import generate_latest

from llm_trace import semconv as s
from llm_trace.core import faults
from llm_trace.core.dispatch import Dispatch
from llm_trace.core.timeline import Timeline
from llm_trace.observers import metrics
from llm_trace.observers.metrics import Instruments, instruments
from llm_trace.testing import FakeClock


@pytest.fixture
def registry():
    """A registry of its own."""
    return CollectorRegistry()


@pytest.fixture(autouse=True)
def counted():
    """Nothing dropped or failed yet."""
    for tally in (faults.internal, faults.dropped, faults.spans):
        tally.clear()


def types(registry):
    """Kind by name of every family in a scrape."""
    lines = generate_latest(registry).decode().splitlines()
    return dict(x.split()[2:] for x in lines if x.startswith("# TYPE"))


def test_every_metric_of_the_table_is_in_the_scrape(registry):
    """Names and kinds are those of `semconv`, before the first request."""
    instruments(registry)

    kinds = {"updowncounter": "gauge"}
    expected = {m.prometheus: kinds.get(m.kind, m.kind) for m in s.METRICS}
    assert expected == types(registry)


def test_help_is_that_of_the_table(registry):
    """Each metric says in the scrape what it is."""
    instruments(registry)

    text = generate_latest(registry).decode()
    assert [] == [m.name for m in s.METRICS if f"# HELP {m.prometheus} {m.help}\n" not in text]


def test_a_registry_has_one_set(registry):
    """Two apps of a process share the instruments; another registry has its own."""
    first = instruments(registry)

    assert first is instruments(registry)
    assert first is not instruments(CollectorRegistry())


def test_a_reloaded_module_finds_its_instruments(registry):
    """`importlib.reload` registers nothing twice."""
    first = instruments(registry)

    again = importlib.reload(metrics).instruments(registry)

    assert first is again


def test_a_second_set_is_refused_by_the_registry(registry):
    """A registry sees the clash at once, not in a scrape."""
    instruments(registry)

    with pytest.raises(ValueError, match="Duplicated"):
        registry.register(Instruments())


def test_no_created_series_of_ours_and_the_hosts_stay(registry):
    """`_created` is off for our metrics without touching the host's."""
    ours = instruments(registry)
    for metric in s.METRICS:
        if metric.kind in metrics.KINDS and metric not in metrics.COUNTED_ELSEWHERE:
            ours.child(metric, ["x"] * len(metric.labels))
    Counter("hosts", "of the host", registry=registry).inc()

    created = [x for x in generate_latest(registry).decode().splitlines() if "_created " in x]
    assert ["hosts_created"] == [x.split()[0] for x in created if not x.startswith("#")]


def test_live_requests_are_counted_by_phase(registry):
    """Each phase from the start; names of apps as `other`; a dispatch that is gone no more."""
    ours = instruments(registry)
    one, other = Dispatch(), Dispatch()
    for dispatch in (one, other):
        ours.watch(dispatch)
    clock = FakeClock().clock
    named, fresh = Timeline(clock), Timeline(clock)
    named.open_interval("mine", {})
    one.live.update([named, fresh])
    other.live.add(Timeline(clock))

    def live():
        name = s.REQUESTS_ACTIVE.prometheus
        values = {
            p: registry.get_sample_value(name, {"llm_trace_phase": p}) for p in (*s.PHASES, "other")
        }
        return {p: n for p, n in values.items() if n}

    assert {"admission": 2, "other": 1} == live()
    assert len(s.PHASES) + 1 == sum(
        s.REQUESTS_ACTIVE.prometheus + "{" in x for x in scrape(registry)
    )
    del other, dispatch
    gc.collect()
    assert {"admission": 1, "other": 1} == live()


def scrape(registry):
    """The lines of a scrape."""
    return generate_latest(registry).decode().splitlines()


def test_what_is_counted_elsewhere_is_shown(registry):
    """Dropped samples, lost spans and contained faults have a series by reason, and one at zero."""
    instruments(registry)
    faults.drop("late_phase")
    faults.spans.update(queue_full=2)

    shown = [x for x in scrape(registry) if "reason=" in x]

    assert [
        'llm_trace_samples_dropped_total{llm_trace_reason="late_phase"} 1.0',
        'llm_trace_errors_internal_total{llm_trace_reason="none"} 0.0',
        'llm_trace_spans_dropped_total{llm_trace_reason="queue_full"} 2.0',
    ] == shown
    assert Tally(late_phase=1) == faults.dropped


def test_a_label_is_its_attribute_with_underscores():
    """Dots are what Prometheus cannot have."""
    assert metrics.label("gen_ai.request.model") == "gen_ai_request_model"
