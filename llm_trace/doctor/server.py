"""What a running server says of itself: its /metrics page, read as any scraper reads it."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Final
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

from llm_trace import semconv as s
from llm_trace.address import is_http
from llm_trace.core.clock import SYSTEM
from llm_trace.doctor.finding import Finding

SECONDS: Final = 5.0
MAX_BYTES: Final = 32 << 20
MAX_SKEW: Final = 5.0
"""Seconds; a Date header has whole ones."""

Samples = dict[str, list[tuple[dict[str, str], float]]]


def server(url: str) -> Iterator[Finding]:
    """Whether the server at `url` runs llm_trace, and how it fares."""
    if not is_http(url):
        yield Finding("server", "fault", f"{url[:120]!r} is no address", "Begin it with http://.")
        return
    address = url if urlsplit(url).path.strip("/") else f"{url.rstrip('/')}/metrics"
    try:
        with urllib.request.urlopen(address, timeout=SECONDS) as answer:  # noqa: S310 - checked above
            text = answer.read(MAX_BYTES).decode("utf-8", "replace")
            date = answer.headers.get("date")
    except urllib.error.HTTPError as fault:
        yield Finding(
            "server",
            "fault",
            f"{address[:160]} answered {fault.code}",
            "Is the setting metrics_path another one, or the app not instrumented?",
        )
        return
    except (OSError, HTTPException, ValueError) as fault:
        yield Finding(
            "server",
            "fault",
            f"nobody answers at {address[:160]}: {str(fault)[:120]}",
            "Is the server up, and is that its address from here?",
        )
        return
    yield from _clock(date)
    yield from _page(_samples(text))


def _clock(date: str | None) -> Iterator[Finding]:
    try:
        there = parsedate_to_datetime(date or "").timestamp()
    except (TypeError, ValueError):
        return
    skew = there - SYSTEM.wall_ns() / 1e9
    if abs(skew) > MAX_SKEW:
        yield Finding(
            "clock",
            "warning",
            f"the server's clock differs from this machine's by {skew:+.0f} s: spans of different "
            "hosts will not line up",
            "Keep the hosts' clocks in step (NTP).",
        )
    else:
        yield Finding("clock", "ok", "the server's clock agrees with this machine's")


def _samples(text: str) -> Samples:
    found: Samples = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    except (ValueError, KeyError, IndexError):
        return found  # what came before the first line that is none
    return found


def _page(samples: Samples) -> Iterator[Finding]:
    if not any(name.startswith("llm_trace_") for name in samples):
        yield Finding(
            "server",
            "fault",
            "its metrics page has nothing of llm_trace",
            "Add llm_trace.instrument(app), or --middleware llm_trace.TraceMiddleware to "
            "vllm serve; behind a proxy ask the server itself.",
        )
        return
    number = _total(samples, s.REQUESTS.prometheus)
    if not number:
        yield Finding(
            "server",
            "warning",
            "it runs llm_trace and has traced no request yet",
            "Send one to a generation route; other routes make spans and no metrics, and "
            "quiet_paths neither.",
        )
    else:
        yield Finding("server", "ok", f"it has traced {number:.0f} requests")
        yield from _unattributed(samples)
    yield from _trouble(samples)


def _unattributed(samples: Samples) -> Iterator[Finding]:
    """The share of TTFT that nobody explains: the sign of an engine that is not joined."""
    parts = samples.get(s.TTFT_PHASE.prometheus, [])
    total = sum(value for _, value in parts)
    blind = sum(
        value
        for labels, value in parts
        if labels.get("llm_trace_phase") in {s.UNATTRIBUTED, s.ENGINE}
    )
    if total and blind / total > 0.5:  # noqa: PLR2004 - most of it
        yield Finding(
            "engine",
            "warning",
            f"{blind / total:.0%} of the time to first token has no split: no engine is joined",
            "In vLLM install llm-trace in the engine's environment; in an app use engine_call or "
            "the setting upstream.",
        )
    elif total:
        yield Finding(
            "engine", "ok", f"{1 - blind / total:.0%} of the time to first token is split"
        )


_TROUBLE: Final = (
    (s.SPANS_DROPPED, "spans were made and never exported", "Look at the collector and its queue."),
    (s.ERRORS_INTERNAL, "faults of llm_trace were contained", "Look at its log, and report them."),
)


def _trouble(samples: Samples) -> Iterator[Finding]:
    for metric, what, fix in _TROUBLE:
        number = _total(samples, metric.prometheus)
        if number:
            reasons = sorted(
                labels.get("llm_trace_reason", "")
                for labels, value in samples[metric.prometheus]
                if value
            )
            yield Finding("server", "fault", f"{number:.0f} {what}: {', '.join(reasons)[:80]}", fix)


def _total(samples: Samples, name: str) -> float:
    return sum(value for _, value in samples.get(name, []) if value == value)  # noqa: PLR0124 - NaN
