"""Builders of PromQL text: selectors, rates, guarded ratios, quantiles over summed buckets.

A ratio drops a divisor of zero and a quantile drops NaN, so that a panel without traffic says
"no data". The functions know how a query is written and not what it is for.
"""

from __future__ import annotations

from typing import Final

from dashboards import vllm
from llm_trace import semconv as s

Metric = s.Metric | str
"""One of ours, or the name of somebody else's."""

STEP: Final = "$__rate_interval"
"""The window of a query that draws a line: Grafana fits it to the scrapes and the zoom."""

WHOLE: Final = "$__range"
"""The window of a query that gives one number: all that the board shows."""

REMEMBERED: Final = "6h"
"""How long scrapes may fail before a series that is found again counts as a new one."""


def label(attribute: str) -> str:
    """The Prometheus label of an attribute."""
    return attribute.replace(".", "_")


MODEL: Final = label(s.REQUEST_MODEL)
PHASE: Final = label(s.PHASE)
LAST_PHASE: Final = label(s.LAST_PHASE)
OUTCOME: Final = label(s.OUTCOME)
BAND: Final = label(s.TTFT_BAND)
START_STATE: Final = label(s.START_STATE)
REASON: Final = label(s.REASON)
VERDICT: Final = label(s.VERDICT)
TIER: Final = label(s.ENGINE_TIER)


# --- selectors --------------------------------------------------------------------------------


def equal(name: str, value: str) -> str:
    """The matcher of one value."""
    return f'{name}="{value}"'


def one_of(name: str, *values: str) -> str:
    """The matcher of any of `values`, taken literally."""
    return f'{name}=~"{"|".join(value.replace("+", "[+]") for value in values)}"'


def none_of(name: str, *values: str) -> str:
    """The matcher of anything but `values`."""
    return f'{name}!~"{"|".join(values)}"'


def within(seconds: float) -> str:
    """The matcher of the bucket up to `seconds`: a client may write the bound as 1 or as 1.0."""
    bound = f"{seconds:g}".replace(".", "[.]")
    return f'le=~"{bound}([.]0)?"'


def select(metric: Metric, *matchers: str, part: str = "") -> str:
    """A selector of `metric` wherever it comes from, as rules want it.

    Args:
        metric: What to select.
        *matchers: Label matchers.
        part: `bucket`, `sum` or `count` of a histogram.
    """
    name = metric if isinstance(metric, str) else metric.prometheus
    name = f"{name}_{part}" if part else name
    return f"{name}{{{','.join(matchers)}}}" if matchers else name


def shown(metric: Metric, *matchers: str, part: str = "") -> str:
    """A selector of `metric` for what the board's variables choose."""
    return select(metric, *matchers, *_chosen(metric), part=part)


def _chosen(metric: Metric) -> tuple[str, ...]:
    job = 'job=~"$job"'
    if isinstance(metric, str):
        return (f'{vllm.MODEL}=~"$model"', job)
    return (f'{MODEL}=~"$model"', job) if s.REQUEST_MODEL in metric.labels else (job,)


# --- functions --------------------------------------------------------------------------------


def rate(selector: str, window: str = STEP) -> str:
    """Growth per second."""
    return f"rate({selector}[{window}])"


def increase(selector: str, window: str = STEP) -> str:
    """Growth over the window."""
    return f"increase({selector}[{window}])"


def average(selector: str, window: str) -> str:
    """A gauge's mean over the window."""
    return f"avg_over_time({selector}[{window}])"


def highest(selector: str, window: str) -> str:
    """A gauge's maximum over the window."""
    return f"max_over_time({selector}[{window}])"


def total(expr: str, *by: str) -> str:
    """The sum, for each set of the labels `by`."""
    return _aggregate("sum", expr, by)


def greatest(expr: str, *by: str) -> str:
    """The maximum, for each set of the labels `by`."""
    return _aggregate("max", expr, by)


def _aggregate(operator: str, expr: str, by: tuple[str, ...]) -> str:
    return f"{operator} by ({', '.join(by)}) ({expr})" if by else f"{operator}({expr})"


def ratio(part: str, whole: str) -> str:
    """`part` over `whole`, label by label; nothing where `whole` is zero."""
    return f"{part} / ({whole} > 0)"


def share(part: str, whole: str, *on: str) -> str:
    """Many parts over the one whole that has the same labels `on`."""
    return f"{part} / on ({', '.join(on)}) group_left () ({whole} > 0)"


def or_zero(part: str, whole: str) -> str:
    """`part`, and zero where there is a `whole` and no part of it yet."""
    return f"({part} or {whole} * 0)"


def quantile(q: float, metric: Metric, *by: str, where: tuple[str, ...] = ()) -> str:
    """A quantile over the summed buckets, on a board; nothing without samples."""
    return _quantile(q, rate(shown(metric, *where, part="bucket")), by)


def quantile_of(
    q: float, metric: Metric, *by: str, window: str, where: tuple[str, ...] = ()
) -> str:
    """A quantile over the summed buckets, in a rule."""
    return _quantile(q, rate(select(metric, *where, part="bucket"), window), by)


def _quantile(q: float, buckets: str, by: tuple[str, ...]) -> str:
    return f"histogram_quantile({q}, {total(buckets, 'le', *by)}) >= 0"


def mean(metric: Metric, *by: str, where: tuple[str, ...] = ()) -> str:
    """The mean sample of a histogram, on a board."""
    parts = (total(rate(shown(metric, *where, part=part)), *by) for part in ("sum", "count"))
    return ratio(*parts)


def heat(metric: Metric, *where: str) -> str:
    """Samples per bucket and interval, as a heat map wants them."""
    return total(increase(shown(metric, *where, part="bucket")), "le")


def part_of(part: str, rest: str) -> str:
    """`part` of `part` and `rest` together; nothing where both are zero."""
    return f"{part} / ({part} + {rest} > 0)"


def at_least(number: int, counter: str, window: str) -> str:
    """What an expression is joined with, so that it is quiet for models with few requests."""
    return f"and on ({MODEL}) {total(increase(counter, window), MODEL)} >= {number}"


def grew(metric: Metric, window: str, *by: str) -> str:
    """How much a counter grew; a series that was born in the window counts in full.

    A counter of faults has no series before its first fault, and `increase` misses that one. A
    series that nobody scraped for a while was not born, unless it begins anew below what it was.
    """
    selector = select(metric)
    known = f"last_over_time({selector}[{REMEMBERED}] offset {window}) <= {selector}"
    born = f"({selector} unless {selector} offset {window} unless {known})"
    return total(f"{born} > 0 or {increase(selector, window)} > 0", *by)
