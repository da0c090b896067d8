"""Recording rules: what alerts compare over long windows, and whom they blame.

Names are `llm_trace:<what>:<how>_rate<window>`; all are kept by model.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from dashboards import knobs
from dashboards import queries as q
from llm_trace import semconv as s

SLOW_BANDS: Final = tuple(
    label
    for label, bound in zip(s.TTFT_BAND_LABELS, s.TTFT_BANDS, strict=True)
    if bound > knobs.TTFT_SECONDS
)
"""The bands of the requests that miss the TTFT objective."""

SLOW: Final = q.one_of(q.BAND, *SLOW_BANDS)
BAD: Final = q.one_of(q.OUTCOME, *knobs.BAD_OUTCOMES)
ENDED_WAITING: Final = (q.none_of(q.OUTCOME, "ok"), q.none_of(q.LAST_PHASE, s.DECODE, s.FINISH))
"""Requests that ended before a token could be read."""


class Record(NamedTuple):
    """One recorded series."""

    name: str
    expr: str


# --- names ------------------------------------------------------------------------------------


def ttft_miss(window: str) -> str:
    """Share of streamed requests that waited longer than the objective, given up ones included."""
    return f"llm_trace:ttft_miss:ratio_rate{window}"


def tpot_miss(window: str) -> str:
    """Share of answers whose tokens came slower than the objective."""
    return f"llm_trace:tpot_miss:ratio_rate{window}"


def availability_miss(window: str) -> str:
    """Share of requests that ended badly."""
    return f"llm_trace:availability_miss:ratio_rate{window}"


def ttft_blame(window: str) -> str:
    """What part of the slow requests' wait each phase was."""
    return f"llm_trace:ttft_blame:share_rate{window}"


def availability_blame(window: str) -> str:
    """What part of the bad endings happened in each phase."""
    return f"llm_trace:availability_blame:share_rate{window}"


def cached_tokens(window: str) -> str:
    """Share of prompt tokens that the prefix cache had."""
    return f"llm_trace:cached_tokens:ratio_rate{window}"


# --- expressions ------------------------------------------------------------------------------


def _sum(metric: s.Metric, window: str, *where: str, part: str = "") -> str:
    return q.total(q.rate(q.select(metric, *where, part=part), window), q.MODEL)


def _over(metric: s.Metric, seconds: float, window: str) -> str:
    good = _sum(metric, window, q.within(seconds), part="bucket")
    return f"1 - {q.ratio(good, _sum(metric, window, part='count'))}"


def _bad(window: str) -> str:
    every = _sum(s.REQUESTS, window)
    return q.ratio(q.or_zero(_sum(s.REQUESTS, window, BAD), every), every)


def _seconds(window: str) -> str:
    """Each phase's share of the slow requests' seconds."""
    seconds = q.rate(q.select(s.TTFT_PHASE, SLOW), window)
    whole = _sum(s.TTFT_PHASE, window, SLOW)
    return q.share(q.total(seconds, q.MODEL, q.PHASE), whole, q.MODEL)


def _endings(window: str, *where: str) -> str:
    """Each phase's share of the requests that ended in it."""
    requests = q.rate(q.select(s.REQUESTS, *where), window)
    moved = f'label_replace({requests}, "{q.PHASE}", "$1", "{q.LAST_PHASE}", "(.+)")'
    whole = _sum(s.REQUESTS, window, *where)
    return q.share(q.total(moved, q.MODEL, q.PHASE), whole, q.MODEL)


def _blame(window: str) -> str:
    """The slow requests' seconds; where nobody lived to a first token, the phase they ended in."""
    seconds = _seconds(window)
    return (
        f"({seconds}) or (({_endings(window, *ENDED_WAITING)}) unless on ({q.MODEL}) ({seconds}))"
    )


def _cached(window: str) -> str:
    every = _sum(s.USAGE_INPUT, window)
    return q.ratio(q.or_zero(_sum(s.USAGE_CACHED, window), every), every)


# --- the table --------------------------------------------------------------------------------


def _misses(window: str) -> tuple[Record, ...]:
    tpot = _over(s.TIME_PER_OUTPUT_TOKEN, knobs.TPOT_SECONDS, window)
    return (
        Record(ttft_miss(window), _over(s.TTFT_OR_END, knobs.TTFT_SECONDS, window)),
        Record(tpot_miss(window), tpot),
        Record(availability_miss(window), _bad(window)),
    )


def _blames(window: str) -> tuple[Record, ...]:
    return (
        Record(ttft_blame(window), _blame(window)),
        Record(availability_blame(window), _endings(window, BAD)),
    )


RECORDS: Final = (
    *(record for burn in knobs.BURNS for w in (burn.short, burn.long) for record in _misses(w)),
    *(record for burn in knobs.BURNS for record in _blames(burn.long)),
    *(Record(cached_tokens(w), _cached(w)) for w in (knobs.CACHE_WINDOW, knobs.CACHE_BASELINE)),
)


def groups() -> dict[str, Any]:
    """The rules as a Prometheus rule file."""
    rules = [{"record": record.name, "expr": record.expr} for record in RECORDS]
    return {"groups": [{"name": "llm_trace.rules", "rules": rules}]}
