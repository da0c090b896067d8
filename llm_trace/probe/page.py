"""What the probe says: a table of requests, where the time went, and how the stream arrived."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, Final

from llm_trace.console import Style
from llm_trace.probe.pace import Stream
from llm_trace.probe.reading import Reading

SCHEMA: Final = "llm-trace.probe/1"

_COLUMNS: Final[tuple[tuple[str, Callable[[Reading], int | None]], ...]] = (
    ("connect", lambda r: r.connect),
    ("head", lambda r: r.head),
    ("ttft", lambda r: r.ttft),
    ("server", lambda r: r.server_ttft),
    ("network", lambda r: r.network_ttft),
    ("total", lambda r: r.total),
    ("net total", lambda r: r.network_total),
)

_LONG: Final = 10_000_000_000
"""Ns from which on milliseconds are too many."""

_ORDER: Final[tuple[Stream, ...]] = ("lumped", "suspect", "streamed", "unknown")

_SAYS: Final[Mapping[Stream, str]] = {
    "streamed": "The stream arrives as it is sent: {tokens} tokens in {lumps} arrivals.",
    "lumped": (
        "The stream is LUMPED together on its way: {tokens} tokens in {lumps} arrivals.\n"
        "Something between holds them back. For nginx set proxy_buffering off, or let\n"
        "the app answer with X-Accel-Buffering: no; look for compression, and for\n"
        "gateways that collect the body."
    ),
    "suspect": (
        "The stream MAY be lumped together: {tokens} tokens in {lumps} arrivals came\n"
        "within {spread}, after a wait of {waited}. Either something holds the answer\n"
        "back, or the server made it at once: only the server can tell."
    ),
    "unknown": "How the stream arrives cannot be told: {tokens} tokens, or they came too fast.",
}


def stream_of(readings: Sequence[Reading]) -> Stream:
    """The worst of what the answers show."""
    seen = {reading.pace.stream for reading in readings if reading.failure is None}
    return next((stream for stream in _ORDER if stream in seen), "unknown")


def render(url: str, readings: Sequence[Reading], style: Style) -> list[str]:
    """The lines of the screen, at most 80 columns."""
    answered = [reading for reading in readings if reading.failure is None]
    lines = [style(f"llm-trace probe: {url}"[:80], "bold"), ""]
    names = ["", *(name for name, _ in _COLUMNS)]
    lines += ["".join(f"{name:>10}" for name in names), *map(_row, _numbered(readings))]
    if len(answered) > 1:
        lines.append(_cells("median", [_median(answered, find) for _, find in _COLUMNS]))
    told = [*_server(answered), "", *_stream(answered, style)] if answered else []
    lines += ["", *(told or _refused(readings, style)), ""]
    return lines + [f"trace {r.trace_id}{_why(r)}"[:80] for r in readings]


def _numbered(readings: Sequence[Reading]) -> list[tuple[str, Reading]]:
    return [(str(number), reading) for number, reading in enumerate(readings, 1)]


def _row(numbered: tuple[str, Reading]) -> str:
    number, reading = numbered
    return _cells(number, [find(reading) for _, find in _COLUMNS])


def _cells(first: str, values: Sequence[float | None]) -> str:
    return f"{first:>10}" + "".join(f"{_ms(value):>10}" for value in values)


def _ms(ns: float | None) -> str:
    if ns is None:
        return "-"
    return f"{ns / 1e6:.1f} ms" if ns < _LONG else f"{ns / 1e9:.1f} s"


def _median(readings: Sequence[Reading], find: Callable[[Reading], int | None]) -> float | None:
    known = [value for reading in readings if (value := find(reading)) is not None]
    return median(known) if known else None


def _server(answered: Sequence[Reading]) -> list[str]:
    """Where the server's own time went, in the answer in the middle."""
    told = sorted((r for r in answered if r.first), key=lambda r: r.server_ttft or 0)
    if not told:
        return [
            "The server does not tell its own time: the network is unknown. With llm_trace",
            "0.1 or later there, and its setting ledger_in_band, it does.",
        ]
    phases = told[len(told) // 2].first
    return ["the server's time to its first token:"] + [
        f"{phase:>14} {_ms(ns):>12}" for phase, ns in phases.items() if ns
    ]


def _stream(answered: Sequence[Reading], style: Style) -> list[str]:
    stream = stream_of(answered)
    shown = next(reading for reading in answered if reading.pace.stream == stream)
    text = _SAYS[stream].format(
        tokens=shown.pace.tokens,
        lumps=shown.pace.lumps,
        spread=_ms(shown.pace.spread),
        waited=_ms(shown.ttft),
    )
    colour = {"streamed": "green", "lumped": "red"}.get(stream, "yellow")
    return [style(line, colour) for line in text.split("\n")]


_KEY: Final = "It wants a key: name the variable that holds one with --api-key-env."
_ROUTE: Final = "Give the URL with the route that answers, and the model with --model."
_ADVICE: Final[Mapping[int | None, str]] = {401: _KEY, 403: _KEY, 404: _ROUTE, 405: _ROUTE}


def _refused(readings: Sequence[Reading], style: Style) -> list[str]:
    advice = next((_ADVICE[r.status] for r in readings if r.status in _ADVICE), None)
    return [style("No request was answered.", "red"), *([advice] if advice else [])]


def _why(reading: Reading) -> str:
    return "" if reading.failure is None else f"  {reading.failure}"


def document(url: str, readings: Sequence[Reading]) -> dict[str, Any]:
    """All of it for machines: seconds, and null for what is not known."""
    return {
        "schema": SCHEMA,
        "url": url,
        "stream": stream_of(readings),
        "requests": [_one(reading) for reading in readings],
    }


def _one(reading: Reading) -> dict[str, Any]:
    pace = reading.pace
    return {
        "trace_id": reading.trace_id,
        "status": reading.status,
        "failure": reading.failure,
        "connect_seconds": _s(reading.connect),
        "tls_seconds": _s(reading.tls),
        "head_seconds": _s(reading.head),
        "client": {"ttft_seconds": _s(reading.ttft), "total_seconds": _s(reading.total)},
        "server": {
            "ttft_seconds": _s(reading.server_ttft),
            "total_seconds": _s(reading.server_total),
            "ttft_phases_seconds": {k: _s(v) for k, v in reading.first.items()},
            "phases_seconds": {k: _s(v) for k, v in reading.whole.items()},
        },
        "network": {
            "ttft_seconds": _s(reading.network_ttft),
            "total_seconds": _s(reading.network_total),
        },
        "stream": {
            "verdict": pace.stream,
            "token_events": pace.tokens,
            "arrivals": pace.lumps,
            "spread_seconds": _s(pace.spread),
        },
    }


def _s(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e9
