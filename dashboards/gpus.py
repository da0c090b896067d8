"""Queries about GPUs: gauges and counters of the DCGM exporter, without those that have no value.

A GPU is told by its host and index. One that several pods share is shown by the exporter once for
each of them, with the same values: hence the greatest, never the sum.
"""

from __future__ import annotations

from typing import Final

from dashboards import dcgm
from dashboards import panels as p
from dashboards import queries as q

ONE: Final = (dcgm.HOST, dcgm.GPU)
NAMED: Final = "{{" + dcgm.HOST + "}} {{" + dcgm.GPU + "}}"
CHOSEN: Final = (f'{dcgm.HOST}=~"$host"', f'{dcgm.GPU}=~"$gpu"')
REASON: Final = "reason"


def gauge(series: dcgm.Series, *where: str) -> str:
    """The values that are values."""
    return f"{q.select(series.name, *where)} < {dcgm.NO_GAUGE}"


def grown(series: dcgm.Series, window: str, *where: str) -> str:
    """A counter's growth per second, where it had a value all the time."""
    selector = q.select(series.name, *where)
    had = f"{q.highest(selector, window)} < {dcgm.NO_COUNTER}"
    return f"{q.rate(selector, window)} and {had}"


def shown(series: dcgm.Series, factor: float = 1) -> str:
    """What the chosen GPUs read now, each once, in base units."""
    return _scaled(q.greatest(gauge(series, *CHOSEN), *ONE), factor)


def _scaled(expr: str, factor: float) -> str:
    return expr if factor == 1 else f"{expr} * {factor}"


def each(expr: str) -> p.Query:
    """A query whose series are GPUs."""
    return p.Query(expr, NAMED)


def throttled(series: dcgm.Series, window: str, *where: str) -> str:
    """Share of the time for which a GPU was held back."""
    share = q.greatest(grown(series, window, *where), *ONE)
    return f"{share} / {dcgm.NANOSECONDS}"


def by_pod(series: dcgm.Series, factor: float) -> str:
    """What the chosen GPUs read now, with the pod that has each, if any."""
    own = f'label_replace({gauge(series, *CHOSEN)}, "pod", "$1", "{dcgm.EXPORTED_POD}", "(.+)")'
    told = f'label_replace({own}, "{dcgm.POD}", "no pod", "{dcgm.POD}", "")'
    return _scaled(q.greatest(told, *ONE, dcgm.POD), factor)
