"""A comparison as a person reads it, within eighty columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Final

from llm_trace.console import WIDTH, Style
from llm_trace.diff.blocks import Data
from llm_trace.diff.comparison import Comparison, PhaseDiff
from llm_trace.diff.significance import Change

_HEAD: Final = (
    f"{'mean ms':<16}{'A':>10}{'B':>10}{'change':>10}{'95 %':>18}{'p':>7}{'':>9}".rstrip()
)
_OTHERS: Final = {
    "requests_per_second": ("requests/s", "{:.2f}"),
    "prompt_tokens": ("prompt tokens", "{:.0f}"),
    "cached_share": ("cached share", "{:.1%}"),
    "cold_share": ("cold starts", "{:.1%}"),
    "error_share": ("errors", "{:.1%}"),
    "rejected_share": ("rejected", "{:.1%}"),
    "cancelled_share": ("cancelled", "{:.1%}"),
}


def render(comparison: Comparison, style: Style) -> Iterator[str]:
    """Yield the whole report, line by line."""
    yield from _side("A", comparison.a)
    yield from _side("B", comparison.b)
    yield ""
    yield from (style(line, "bold") for line in _wrapped(verdict(comparison)))
    yield ""
    yield style(_HEAD, "dim")
    for phase in comparison.phases:
        line = _row(phase.phase, phase.a, phase.b, phase.change, phase.p, phase.word)
        yield style(line, "yellow") if phase.word == "moved" else line
    whole = comparison.ttft
    yield _row("TTFT", whole.a, whole.b, whole.change, whole.change.p, whole.word)
    for name, (a, b) in whole.quantiles.items():
        yield f"{'  ' + name:<16}{_ms(a):>10}{_ms(b):>10}{_ms_change(a, b):>10}  from buckets"
    yield from _others(comparison)


def _side(name: str, data: Data) -> Iterator[str]:
    yield from _wrapped(f"{name}  {data.side.text}: {data.count:,.0f} first tokens")
    yield f"   {data.side.window}"


def _row(name: str, a: float, b: float, change: Change, p: float | None, word: str) -> str:
    interval = "-"
    if change.low is not None and change.high is not None:
        interval = f"{_signed(change.low)} to {_signed(change.high)}"
    cells = f"{name[:16]:<16}{_ms(a):>10}{_ms(b):>10}{_signed(change.value):>10}{interval:>18}"
    return f"{cells}{probability(p):>7} {word}"


def _others(comparison: Comparison) -> Iterator[str]:
    yield ""
    yield f"{'what else was':<16}{'A':>10}{'B':>10}"
    for name, (a, b) in comparison.others.items():
        title, form = _OTHERS[name]
        shown = ("-" if value is None else form.format(value) for value in (a, b))
        yield f"{title:<16}" + "".join(f"{text:>10}" for text in shown)


def verdict(comparison: Comparison) -> str:
    """Say in a sentence or two what moved."""
    whole = comparison.ttft
    moved = [phase for phase in comparison.phases if phase.word == "moved"]
    if whole.word == "unknown":
        return "Too few blocks had requests to tell a change from noise: use longer windows."
    ms = whole.change.value * 1e3
    if whole.word == "noise" and not moved:
        text = f"No phase moved by more than its noise; mean TTFT changed by {ms:+.1f} ms."
        shaped = [phase.phase for phase in comparison.phases if phase.word == "reshaped"]
        return f"{text} The shape of {', '.join(shaped)} did change." if shaped else text
    sure = "" if whole.word == "moved" else ", within its noise"
    text = f"Mean TTFT {'grew' if ms > 0 else 'fell'} by {abs(ms):.1f} ms{sure}."
    if not moved:
        return f"{text} No single phase moved by more than its noise."
    moved.sort(key=lambda phase: -abs(phase.change.value))
    return f"{text} Moved: {', '.join(_said(phase) for phase in moved)}."


def _said(phase: PhaseDiff) -> str:
    return f"{phase.phase} {phase.change.value * 1e3:+.1f} ms"


def probability(p: float | None) -> str:
    """A probability, as small as it can be told."""
    if p is None:
        return "-"
    return "<0.001" if p < 0.001 else f"{p:.3f}"  # noqa: PLR2004 - three places


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.1f}"


def _ms_change(a: float | None, b: float | None) -> str:
    return "-" if a is None or b is None else _signed(b - a)


def _signed(seconds: float) -> str:
    """Milliseconds with their sign; nothing is +0.0."""
    return f"{round(seconds * 1e3, 1) + 0.0:+.1f}"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH)
