"""One side of a comparison: which series, and from when until when."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Final

from llm_trace.diff.errors import DiffError

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION: Final = re.compile(r"(\d{1,9})([smhdw])")
_SECONDS: Final = re.compile(r"\d{9,11}(\.\d{1,6})?")
_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

_END: Final = 253_402_300_800
"""The year 10000, which no calendar of ours has; Prometheus begins in 1970."""

LEAST: Final = 60.0
"""Seconds under which a window is too short for two scrapes a block."""


@dataclass(frozen=True, slots=True)
class Side:
    """What the user called it, its label matchers, and its window in Unix seconds."""

    text: str
    labels: Mapping[str, str]
    start: float
    end: float

    @property
    def seconds(self) -> float:
        """How long the window is."""
        return self.end - self.start

    @property
    def matchers(self) -> str:
        """The labels as PromQL writes them."""
        return ",".join(f'{name}="{_escaped(value)}"' for name, value in self.labels.items())

    @property
    def window(self) -> str:
        """From when until when, for a person."""
        first, last = (datetime.fromtimestamp(t, timezone.utc) for t in (self.start, self.end))
        return f"{first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S} UTC"


def parse(text: str, *, where: Sequence[str], over: str, now: float) -> Side:
    """Read a side.

    Args:
        text: What the user wrote: a window, labels, or labels@window.
        where: Labels of both sides.
        over: The length of the window of a side that has none, as `1h`.
        now: Unix seconds.

    Raises:
        DiffError: It is none; the message says how one looks.
    """
    labels, window = _split(text)
    pairs = [_label(text, part) for part in (*where, *filter(None, labels.split(",")))]
    start, end = _window(text, window or f"{over}..now", now)
    if end - start < LEAST:
        raise DiffError(f"{text!r} is shorter than a minute, or ends before it begins.")
    return Side(text, dict(pairs), start, end)


def check(a: Side, b: Side) -> None:
    """Make sure that two sides are two.

    Raises:
        DiffError: They share requests.
    """
    if a.labels == b.labels and a.start < b.end and b.start < a.end:
        raise DiffError(
            f"{a.text!r} and {b.text!r} overlap, so they share requests: use windows that do not, "
            "or a label that tells them apart."
        )


def _split(text: str) -> tuple[str, str]:
    labels, found, window = text.rpartition("@")
    if found:
        return labels, window
    return ("", text) if ".." in text and "=" not in text else (text, "")


def _label(text: str, part: str) -> tuple[str, str]:
    name, found, value = part.strip().partition("=")
    if not found or not _LABEL.fullmatch(name) or not value:
        raise DiffError(
            f"{part!r} in {text!r} is neither label=value nor a window such as 2h..1h or 1h..now."
        )
    return name, value.strip('"')


def _window(text: str, window: str, now: float) -> tuple[float, float]:
    start, found, end = window.partition("..")
    if not found:
        raise DiffError(f"{window!r} in {text!r} is no window: use one such as 2h..1h.")
    return _moment(text, start.strip(), now), _moment(text, end.strip(), now)


def _moment(text: str, word: str, now: float) -> float:
    moment = _read(word, now)
    if moment is None or not 0 <= moment < _END:
        raise DiffError(
            f"{word!r} in {text!r} is no time: use 2h (ago), now, or 2026-11-30T09:00Z."
        )
    return moment


def _read(word: str, now: float) -> float | None:
    if word == "now":
        return now
    if match := _DURATION.fullmatch(word):
        return now - int(match[1]) * _UNITS[match[2]]
    if _SECONDS.fullmatch(word):
        return float(word)
    try:
        moment = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", word))
        return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        return None


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
