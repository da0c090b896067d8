"""The in-band ledger on the wire: how a caller asks, and the form in which a server tells.

A ledger travels as durations by phase, in whole microseconds, rounded down; never as stamps, since
the two ends share no clock, and never with a name that is not of the closed vocabulary. What is
read here came over a network, so it is hostile until checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from llm_trace import semconv as s

HEADER: Final = "x-llm-trace-ledger"
"""On a request it asks; on the answer it says that the ledger comes."""
ASKED: Final = "1"
SERVER_TIMING: Final = "server-timing"

MARK: Final = b": llm_trace "
"""How the line of an event stream begins that carries a ledger: a comment to everybody else."""
MAX_LINE: Final = 2048

FIRST_TOKEN: Final = "first_token"  # noqa: S105 - a moment
END: Final = "end"
_MOMENTS: Final = (FIRST_TOKEN, END)

_MAX_US: Final = 10**12
_KNOWN: Final = frozenset({*s.PHASES, s.OTHER})
_PREFIX: Final = "llm_trace_"
_METRIC: Final = re.compile(_PREFIX + r"(\w{1,32})\s*;\s*dur=(\d{1,10}(?:\.\d{1,6})?)\s*(?:,|$)")


class Told(NamedTuple):
    """A ledger that came over the wire."""

    at: str
    """`first_token` or `end`."""
    phases: Mapping[str, int]
    """Ns by phase."""


def comment(at: str, phases: Mapping[str, int]) -> bytes:
    """The ledger as one line of an event stream."""
    document = {"v": 1, "at": at, "us": _microseconds(phases)}
    return MARK + json.dumps(document, separators=(",", ":")).encode() + b"\n"


def read_comment(line: bytes) -> Told | None:
    """The ledger in a line that begins with `MARK`; None where there is none to be believed."""
    if not line.startswith(MARK) or len(line) > MAX_LINE:
        return None
    try:
        document = json.loads(line[len(MARK) :])
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or document.get("v") != 1:
        return None
    at, us = document.get("at"), document.get("us")
    if at not in _MOMENTS or not isinstance(us, dict) or not us:
        return None
    return Told(at, _ns(us)) if all(map(_is_count, us.values())) else None


def read_stream(body: bytes) -> Iterator[Told]:
    """Every ledger between the events of a stream that was read whole."""
    for line in body.split(b"\n") if MARK in body else ():
        told = read_comment(line)
        if told is not None:
            yield told


def server_timing(phases: Mapping[str, int]) -> str:
    """The ledger as the value of a `Server-Timing` header."""
    return ", ".join(
        f"{_PREFIX}{phase};dur={us / 1e3:.3f}" for phase, us in _microseconds(phases).items()
    )


def read_server_timing(value: str) -> Told | None:
    """The ledger among the metrics of a `Server-Timing` header."""
    found = _METRIC.findall(value[:MAX_LINE])
    us = {phase: round(float(ms) * 1e3) for phase, ms in found}
    return Told(END, _ns(us)) if us else None


def other_timings(value: str) -> str:
    """What a `Server-Timing` header says beside the ledger."""
    metrics = [part for part in value.split(",") if not part.lstrip().startswith(_PREFIX)]
    return ",".join(metrics).strip()


def _microseconds(phases: Mapping[str, int]) -> dict[str, int]:
    """Whole microseconds by phase of the vocabulary; an app's own names stay at home."""
    counted: dict[str, int] = {}
    for phase, ns in phases.items():
        name = phase if phase in _KNOWN else s.OTHER
        counted[name] = counted.get(name, 0) + ns
    return {phase: ns // 1000 for phase, ns in counted.items()}


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= _MAX_US


def _ns(us: Mapping[str, int]) -> dict[str, int]:
    """Ns by phase; what this version has no name for is `other`."""
    phases: dict[str, int] = {}
    for phase, count in us.items():
        name = phase if phase in _KNOWN else s.OTHER
        phases[name] = phases.get(name, 0) + count * 1000
    return phases
