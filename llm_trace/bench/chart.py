"""Two kinds of chart as SVG text: lines with intervals, and stacked bars.

Colours are CSS variables of the page, so that a chart follows it into the dark. Every chart has a
title and a description for those who do not see it; the page repeats its numbers in a table.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from itertools import count
from typing import Final, NamedTuple

WIDTH: Final = 720
HEIGHT: Final = 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 12, 44
_ROW: Final = 26
_NAMES: Final = 190
COLOURS: Final = 8
"""How many series have a colour of their own; the page names them --c0 and on."""

_LEAST: Final = 1e-9
"""Values under it are drawn as nothing."""

_numbers: Final = count()


class Point(NamedTuple):
    """A value, the interval it may lie in, and a mark above it."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    tail: float | None = None


class Series(NamedTuple):
    """Points that belong together."""

    name: str
    points: Sequence[Point]
    dashed: bool = False
    """A line that was computed: it has no dots."""


class Bar(NamedTuple):
    """One bar, made of parts in the order of the legend."""

    name: str
    parts: Sequence[float]


def lines(title: str, about: str, axes: tuple[str, str], series: Sequence[Series]) -> str:
    """A line for each series; both axes begin at 0.

    Args:
        title: What it is called.
        about: The same in a sentence, for those who do not see it.
        axes: What stands below and beside.
        series: At most `COLOURS` have colours of their own.
    """
    points = [point for one in series for point in one.points]
    width, height = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM
    across = ticks(max((p.x for p in points), default=1.0))
    up = ticks(max((max(p.y, p.high or 0, p.tail or 0) for p in points), default=1.0))
    plane = _Plane(width / across[-1], height / up[-1])
    drawn = [*_grid(plane, across, up, axes)]
    for number, one in enumerate(series):
        drawn += _line(plane, one, number % COLOURS)
    return _svg(title, about, HEIGHT, drawn) + _legend([one.name for one in series])


def bars(title: str, about: str, unit: str, legend: Sequence[str], rows: Sequence[Bar]) -> str:
    """A horizontal bar for each row, its parts stacked.

    Args:
        title: What it is called.
        about: The same in a sentence.
        unit: What stands below.
        legend: Names of the parts.
        rows: From top to bottom.
    """
    scale = ticks(max((sum(row.parts) for row in rows), default=1.0))
    wide = (WIDTH - _NAMES - _RIGHT) / scale[-1]
    bottom = _TOP + _ROW * len(rows)
    drawn = []
    for mark in scale:
        x = _NAMES + mark * wide
        drawn.append(f'<path class="grid" d="M{x:.1f} {_TOP}V{bottom}"/>')
        drawn.append(_text(x, bottom + 16, f"{mark:g}", "middle"))
    drawn.append(_text(_NAMES + scale[-1] * wide / 2, bottom + 34, unit, "middle"))
    for number, row in enumerate(rows):
        drawn += _stack(row, _TOP + _ROW * number, wide)
    return _svg(title, about, bottom + _BOTTOM, drawn) + _legend(legend)


def ticks(most: float) -> list[float]:
    """Round marks from 0 to at least `most`."""
    if not _LEAST <= most < math.inf:
        return [0.0, 1.0]
    raw = most / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))
    return [round(step * n, 12) for n in range(math.ceil(most / step - 1e-9) + 1)]


class _Plane(NamedTuple):
    """From values to places on the page."""

    wide: float
    high: float

    def x(self, value: float) -> float:
        return _LEFT + value * self.wide

    def y(self, value: float) -> float:
        return HEIGHT - _BOTTOM - value * self.high


def _grid(
    plane: _Plane, across: Sequence[float], up: Sequence[float], axes: tuple[str, str]
) -> Iterator[str]:
    right, bottom = plane.x(across[-1]), plane.y(0)
    for mark in up:
        y = plane.y(mark)
        yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{right:.1f}"/>'
        yield _text(_LEFT - 8, y + 4, f"{mark:g}", "end")
    for mark in across:
        yield _text(plane.x(mark), bottom + 18, f"{mark:g}", "middle")
    below, beside = axes
    yield _text((_LEFT + right) / 2, HEIGHT - 6, below, "middle")
    middle = (plane.y(up[-1]) + bottom) / 2
    turned = f'transform="rotate(-90 14 {middle:.1f})"'
    yield f'<text x="14" y="{middle:.1f}" text-anchor="middle" {turned}>{escape(beside)}</text>'


def _line(plane: _Plane, series: Series, colour: int) -> Iterator[str]:
    places = [(plane.x(p.x), plane.y(p.y)) for p in series.points]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    if len(places) > 1:
        dash = ' stroke-dasharray="5 4"' if series.dashed else ""
        yield f'<path class="line" stroke="var(--c{colour})"{dash} d="M{path}"/>'
    if series.dashed:
        return
    for point, (x, y) in zip(series.points, places, strict=True):
        yield from _whiskers(plane, point, x, colour)
        said = f"{series.name}: {point.y:.4g} at {point.x:.4g}"
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="var(--c{colour})">'
        yield f"<title>{escape(said)}</title></circle>"


def _whiskers(plane: _Plane, point: Point, x: float, colour: int) -> Iterator[str]:
    stroke = f'class="line" stroke="var(--c{colour})"'
    if point.low is not None and point.high is not None:
        yield f'<path {stroke} d="M{x:.1f} {plane.y(point.low):.1f}V{plane.y(point.high):.1f}"/>'
    if point.tail is not None:
        yield f'<path {stroke} d="M{x - 6:.1f} {plane.y(point.tail):.1f}h12"/>'


def _stack(row: Bar, top: float, wide: float) -> Iterator[str]:
    yield _text(_NAMES - 8, top + 17, row.name, "end")
    x = float(_NAMES)
    for number, part in enumerate(row.parts):
        width = part * wide
        yield (
            f'<rect x="{x:.1f}" y="{top + 4}" width="{width:.1f}" height="{_ROW - 8}" '
            f'fill="var(--c{number % COLOURS})"/>'
        )
        x += width


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(title: str, about: str, height: float, drawn: Sequence[str]) -> str:
    number = next(_numbers)
    names = f'aria-labelledby="t{number} d{number}"'
    head = f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" {names}>'
    titles = f'<title id="t{number}">{escape(title)}</title>'
    return f'{head}{titles}<desc id="d{number}">{escape(about)}</desc>{"".join(drawn)}</svg>'


def _legend(names: Sequence[str]) -> str:
    items = "".join(
        f'<li><span style="background:var(--c{number % COLOURS})"></span>{escape(name)}</li>'
        for number, name in enumerate(names)
    )
    return f'<ul class="legend">{items}</ul>'
