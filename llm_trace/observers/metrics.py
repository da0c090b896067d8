"""Every request metric, recorded once into Prometheus accumulators, wired from one table.

The OTLP metrics are made from these same accumulators when they are exported (see `bridge`), so
both paths always agree and a request pays for one of them.
"""

from __future__ import annotations

import weakref
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from prometheus_client import Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import REGISTRY, CollectorRegistry

from llm_trace import semconv as s
from llm_trace.core import engines, faults
from llm_trace.core.clock import SYSTEM
from llm_trace.core.dispatch import Dispatch
from llm_trace.observers import workers
from llm_trace.observers.samples import WAITING, Durations, Samples
from llm_trace.observers.workers import Published

_ATTRIBUTE: Final = "_llm_trace_instruments"

KINDS: Final[Mapping[str, Callable[..., Any]]] = {"histogram": Histogram, "counter": Counter}

COUNTED_ELSEWHERE: Final[Mapping[s.Metric, Tally[str]]] = {
    s.SAMPLES_DROPPED: faults.dropped,
    s.ERRORS_INTERNAL: faults.internal,
    s.SPANS_DROPPED: faults.spans,
}
"""Counters whose numbers live where the events happen, in layers that know no Prometheus."""


def label(attribute: str) -> str:
    """The Prometheus label of an attribute."""
    return attribute.replace(".", "_")


class Instruments:
    """The accumulators of one registry, and the collector that shows them there.

    One set serves every app and middleware of a process, so that nothing registers twice.
    """

    def __init__(self) -> None:
        self.samples = Samples(1 if workers.are_many() else WAITING)
        self.published = Published(self.live) if workers.are_many() else None
        """What other workers are to see of this one's live numbers."""
        self._dispatches: weakref.WeakSet[Dispatch] = weakref.WeakSet()
        self._instruments = {
            metric: KINDS[metric.kind](
                metric.prometheus,
                metric.help,
                [label(name) for name in metric.labels],
                registry=None,
                **({"buckets": metric.buckets} if metric.buckets else {}),
            )
            for metric in s.METRICS
            if metric.kind in KINDS and metric not in COUNTED_ELSEWHERE
        }

    def child(self, metric: s.Metric, values: Iterable[str]) -> Any:
        """The accumulator of one label set, made at the first use."""
        instrument = self._instruments[metric]
        return instrument.labels(*values) if metric.labels else instrument

    def durations(self, metric: s.Metric, values: Iterable[str]) -> Durations:
        """The histogram of one label set, which takes ns by the column."""
        return Durations(self.child(metric, values))

    def start(self) -> None:
        """A server begins to serve: other workers may want to know of its live numbers."""
        if self.published is not None:
            self.published.start()

    def watch(self, dispatch: Dispatch) -> None:
        """Count the live requests of `dispatch` in the active gauge, as long as it exists."""
        self._dispatches.add(dispatch)

    def describe(self) -> list[Family]:
        """What a registry checks for clashes: names alone."""
        return [Family(m.prometheus.removesuffix("_total"), m.help, "unknown") for m in s.METRICS]

    def collect(self) -> Iterator[Family]:
        """Every family now; without `_created` series, whatever the host does with its own."""
        self.samples.drain()
        for instrument in self._instruments.values():
            for family in instrument.collect():
                family.samples = [x for x in family.samples if not x.name.endswith("_created")]
                yield family
        yield from self.live()

    def live(self) -> Iterator[Family]:
        """The families that are read where their numbers live."""
        yield self._active()
        yield from _engines()
        for metric, tally in COUNTED_ELSEWHERE.items():
            yield _tallied(metric, tally)

    def _active(self) -> Family:
        metric = s.REQUESTS_ACTIVE
        family = GaugeMetricFamily(metric.prometheus, metric.help, labels=[label(s.PHASE)])
        live: Tally[str] = Tally(dict.fromkeys(s.PHASES, 0))
        for dispatch in tuple(self._dispatches):
            for phase, number in dispatch.live_phases().items():
                live[phase if phase in s.PHASES else s.OTHER] += number
        for phase, number in live.items():
            family.add_metric([phase], number)
        return family


def _engines() -> Iterator[Family]:
    """What is known of the engines of this process, read when it is asked for."""
    joined = tuple(engines.joined)
    tiers = Tally(engine.tier for engine in joined)
    info = GaugeMetricFamily(
        s.ENGINE_INFO.prometheus, s.ENGINE_INFO.help, labels=[label(s.ENGINE_TIER)]
    )
    for tier, number in sorted(tiers.items()):
        info.add_metric([tier], number)
    yield info
    handed_off = engines.oldest_waiting()
    age = 0.0 if handed_off is None else max(0, SYSTEM.monotonic_ns() - handed_off) / 1e9
    yield _gauge(s.ENGINE_OLDEST_WAITING, age)
    yield _gauge(s.ENGINE_FOREIGN_CLOCK, sum(engine.clock_is_foreign for engine in joined))


def _gauge(metric: s.Metric, value: float) -> Family:
    return GaugeMetricFamily(metric.prometheus, metric.help, value=value)


def _tallied(metric: s.Metric, tally: Tally[str]) -> Family:
    family = CounterMetricFamily(metric.prometheus, metric.help, labels=[label(s.REASON)])
    for reason, number in sorted(tally.items()) or [("none", 0)]:
        family.add_metric([reason], number)
    return family


def instruments(registry: CollectorRegistry = REGISTRY) -> Instruments:
    """The instruments of `registry`, registered there at the first call.

    They are kept on the registry itself, so that a reloaded module finds them again.
    """
    found: Instruments | None = getattr(registry, _ATTRIBUTE, None)
    if found is None:
        found = Instruments()
        registry.register(found)
        setattr(registry, _ATTRIBUTE, found)
    return found
