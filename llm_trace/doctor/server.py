"""What a running server says of itself: its /metrics page, read as any scraper reads it."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Final
from urllib.parse import SplitResult

from prometheus_client.parser import text_string_to_metric_families

from llm_trace import semconv as s
from llm_trace.address import http_url
from llm_trace.core.clock import SYSTEM
from llm_trace.doctor.finding import Finding
from llm_trace.doctor.unanswered import SECONDS, Advice, Place, unanswered
from llm_trace.errors import LlmTraceError

MAX_BYTES: Final = 32 << 20
_ASKED_AGAIN: Final = 7
"""How often more: where several processes listen, any of them may be the one that answers."""
MAX_SKEW: Final = 5.0
"""Seconds; a Date header has whole ones."""

Samples = dict[str, list[tuple[dict[str, str], float]]]


_UNANSWERED: Final = Advice(
    nobody="Is the server up, and is that its address from here?",
    untrusted="Use a name that is in it, and give the CA that signed it in SSL_CERT_FILE.",
    no_http="Is that the port of HTTP?",
)
_UNKNOWN: Final = (
    "Is the setting metrics_path another one, the app mounted below a path, or not instrumented?"
)
_GUARDED: Final = "Ask the server itself, past what guards the page."
_REFUSED: Final[Mapping[int, str]] = {401: _GUARDED, 403: _GUARDED, 407: _GUARDED}


def server(url: str) -> Iterator[Finding]:
    """Whether the server at `url` runs llm_trace, and how it fares."""
    try:
        parts = http_url(url, such_as="http://localhost:8000")
    except LlmTraceError as fault:
        yield Finding("server", "fault", str(fault), "Correct the address.")
        return
    address = url if parts.path.strip("/") else f"{url.rstrip('/')}/metrics"
    try:
        text, date = _asked(address)
    except urllib.error.HTTPError as fault:
        yield _refused(address, fault)
        return
    except (OSError, HTTPException, ValueError) as fault:
        yield _unanswered(parts, fault)
        return
    samples = _samples(text)
    yield from _clock(date)
    yield from _page(samples)
    yield from _workers(samples, address)


def _asked(address: str) -> tuple[str, str | None]:
    """The page, on a connection of its own, and the date that it came with."""
    with _DIRECT.open(address, timeout=SECONDS) as answer:
        return answer.read(MAX_BYTES).decode("utf-8", "replace"), answer.headers.get("date")


_DIRECT: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Asks the server itself, whatever proxy the environment names."""


def _refused(address: str, fault: urllib.error.HTTPError) -> Finding:
    """An answer that is no page; where the page of llm_trace cannot be made, its own sentence."""
    said = fault.read(500).decode("utf-8", "replace").strip()
    if said.startswith("llm_trace: "):
        return Finding(
            "server", "fault", f"it has no page of metrics: {said}", "See the server's log."
        )
    fix = _REFUSED.get(fault.code, _UNKNOWN)
    return Finding("server", "fault", f"{address[:160]} answered {fault.code}", fix)


def _unanswered(parts: SplitResult, fault: Exception) -> Finding:
    tls = parts.scheme == "https"
    place = Place(parts.hostname or "", parts.port or (443 if tls else 80), tls)
    inner = getattr(fault, "reason", None)
    cause = inner if isinstance(inner, Exception) else fault
    return unanswered("server", place, cause, _UNANSWERED)


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
            "Add llm_trace.instrument(app), or --middleware llm_trace.TraceMiddleware to vllm "
            "serve. Behind a proxy ask the server itself. Where the app has a page of its own "
            "there, give ours another place: the setting metrics_path.",
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
        yield Finding("server", "ok", f"requests traced: {number:.0f}")
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
            "vLLM: run `llm-trace doctor` in its environment, and look for llm_trace in its log. "
            "An app: is the engine called over HTTP, by a client that is traced? Else say "
            "engine_call. An engine that runs llm_trace too tells the app its parts.",
        )
    elif total:
        yield Finding(
            "engine", "ok", f"{1 - blind / total:.0%} of the time to first token is split"
        )


_TROUBLE: Final = (
    (s.SPANS_DROPPED, "spans made and never exported", "Look at the collector and its queue."),
    (s.ERRORS_INTERNAL, "contained faults of llm_trace", "Look at its log, and report them."),
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
            said = f"{what}: {number:.0f}, by {', '.join(reasons)[:80]}"
            yield Finding("server", "fault", said, fix)


def _workers(samples: Samples, address: str) -> Iterator[Finding]:
    """Whether the page is of one process, and the next to be asked is another."""
    started = {_started(samples)}
    try:
        for _ in range(_ASKED_AGAIN if None not in started else 0):
            started.add(_started(_samples(_asked(address)[0])))
    except (OSError, HTTPException, ValueError):
        pass  # what it has said so far stands
    if len(started - {None}) > 1:
        yield Finding(
            "workers",
            "warning",
            f"at least {len(started - {None})} processes answer there in turn, each for itself "
            "alone: a scrape meets any of them",
            "Workers of one server: set PROMETHEUS_MULTIPROC_DIR to an empty directory before it "
            "starts, or send metrics over OTLP. Servers behind one address: scrape each.",
        )


def _started(samples: Samples) -> float | None:
    """When the process began whose page it is; None on a page of several."""
    found = samples.get("process_start_time_seconds", [])
    return found[0][1] if found else None


def _total(samples: Samples, name: str) -> float:
    return sum(value for _, value in samples.get(name, []) if value == value)  # noqa: PLR0124 - NaN
