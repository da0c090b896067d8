"""OTLP metrics from the Prometheus accumulators: recorded once, told twice.

Pure translation of collected families; the SDK's classes are handed in by `providers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.samples import Exemplar, Sample

from llm_trace import semconv as s
from llm_trace.observers.metrics import label

_BY_FAMILY: Final = {m.prometheus.removesuffix("_total"): m for m in s.METRICS}


class Number(NamedTuple):
    """One data point of a counter or gauge."""

    attributes: Mapping[str, str]
    value: float
    exemplars: tuple[Exemplar, ...] = ()


class Distribution(NamedTuple):
    """One data point of a histogram."""

    attributes: Mapping[str, str]
    counts: tuple[int, ...]
    bounds: tuple[float, ...]
    total: float
    exemplars: tuple[Exemplar, ...]


Point = Number | Distribution


def translate(families: Iterable[Family]) -> Iterator[tuple[s.Metric, list[Point]]]:
    """The metrics of `semconv` and their points; families of strangers are left out."""
    for family in families:
        metric = _BY_FAMILY.get(family.name)
        if metric is not None and family.samples:
            make = _distributions if metric.kind == "histogram" else _numbers
            yield metric, list(make(metric, family.samples))


def _attributes(metric: s.Metric, labels: Mapping[str, str]) -> dict[str, str]:
    """Labels under their attribute names; Prometheus writes an absent one as empty."""
    pairs = ((name, labels.get(label(name), "")) for name in metric.labels)
    return {name: value for name, value in pairs if value}


def _numbers(metric: s.Metric, samples: Iterable[Sample]) -> Iterator[Number]:
    for sample in samples:
        exemplars = (sample.exemplar,) if sample.exemplar else ()
        yield Number(_attributes(metric, sample.labels), sample.value, exemplars)


def _distributions(metric: s.Metric, samples: Iterable[Sample]) -> Iterator[Distribution]:
    groups: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
    for sample in samples:
        labels = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "le"))
        groups.setdefault(labels, []).append(sample)
    for labels, group in groups.items():
        yield _distribution(_attributes(metric, dict(labels)), group)


def _distribution(attributes: Mapping[str, str], group: Iterable[Sample]) -> Distribution:
    buckets = [x for x in group if x.name.endswith("_bucket")]
    total = next(x.value for x in group if x.name.endswith("_sum"))
    cumulative = [int(x.value) for x in buckets]
    counts = [b - a for a, b in zip([0, *cumulative], cumulative, strict=False)]
    bounds = tuple(float(x.labels["le"]) for x in buckets[:-1])
    exemplars = tuple(x.exemplar for x in buckets if x.exemplar)
    return Distribution(attributes, tuple(counts), bounds, total, exemplars)


class Growth:
    """What counters and histograms grew by from one export to the next: delta temporality."""

    def __init__(self) -> None:
        self._last: dict[tuple[Any, ...], Point] = {}

    def of(self, metric: s.Metric, points: Iterable[Point], since: float) -> list[Point]:
        """The points that grew, by how much; of exemplars those that came after `since`, Unix s."""
        grown = (self._grown(metric, point, since) for point in points)
        return [point for point in grown if point is not None]

    def _grown(self, metric: s.Metric, point: Point, since: float) -> Point | None:
        key = (metric.name, *sorted(point.attributes.items()))
        before, self._last[key] = self._last.get(key), point
        new = tuple(x for x in point.exemplars if float(x.timestamp or 0) >= since)
        if isinstance(point, Number):
            value = point.value - (before.value if isinstance(before, Number) else 0)
            return point._replace(value=value, exemplars=new) if value else None
        if isinstance(before, Distribution):
            counts = tuple(
                now - then for now, then in zip(point.counts, before.counts, strict=True)
            )
            point = point._replace(counts=counts, total=point.total - before.total)
        return point._replace(exemplars=new) if any(point.counts) else None


def exemplar_ids(exemplar: Exemplar) -> tuple[int, int]:
    """Trace and span id of an exemplar."""
    labels: Any = exemplar.labels
    return int(labels["trace_id"], 16), int(labels["span_id"], 16)
