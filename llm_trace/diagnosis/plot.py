"""The roofline drawn: operations a second over operations a byte, both by powers of ten."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape
from typing import Any, Final, NamedTuple

_COLUMNS: Final = 68
_ROWS: Final = 14
_MARGIN: Final = 9


class Point(NamedTuple):
    """One pass: where it lies and how it is drawn."""

    intensity: float
    mark: str
    label: str


class Frame(NamedTuple):
    """What the drawing shows: logarithms to the base of ten."""

    left: float
    right: float
    bottom: float
    top: float
    peak: float
    bandwidth: float

    def roof(self, x: float) -> float:
        """The most operations a second at an intensity, both as logarithms."""
        return min(self.peak, x + self.bandwidth)


def points(found: dict[str, Any]) -> list[Point]:
    """The passes of a roofline document."""
    decodes = [Point(r["intensity"], "o", f"decode x {r['batch']}") for r in found["decode"]]
    prefills = [Point(r["intensity"], "x", f"prefill {r['tokens']}") for r in found["prefill"]]
    return decodes + prefills


def frame(found: dict[str, Any]) -> Frame:
    """A frame that holds the ridge and every pass."""
    device = found["device"]
    group = device["tensor_parallel"]
    peak = math.log10(device["peak"] * group)
    bandwidth = math.log10(device["bandwidth"] * group)
    shown = [math.log10(p.intensity) for p in points(found)] + [math.log10(found["ridge"])]
    left, right = math.floor(min(shown)), math.ceil(max(shown))
    right = max(right, left + 1)
    return Frame(left, right, min(peak, left + bandwidth), peak, peak, bandwidth)


def terminal(found: dict[str, Any]) -> Iterator[str]:
    """The drawing in text, at most 80 columns wide."""
    shown = frame(found)
    grid = [[" "] * _COLUMNS for _ in range(_ROWS)]
    for column in range(_COLUMNS):
        x = shown.left + (shown.right - shown.left) * column / (_COLUMNS - 1)
        flat = shown.roof(x) >= shown.peak
        grid[_row(shown, shown.roof(x))][column] = "-" if flat else "/"
    for point in points(found):
        x = math.log10(point.intensity)
        column = round((x - shown.left) / (shown.right - shown.left) * (_COLUMNS - 1))
        grid[_row(shown, shown.roof(x))][column] = point.mark
    yield "TFLOP/s at most; o decode, x prefill, left to right as in the tables"
    for number, row in enumerate(grid):
        value = shown.top - (shown.top - shown.bottom) * number / (_ROWS - 1)
        name = f"{10**value / 1e12:.3g}" if number in {0, _ROWS // 2, _ROWS - 1} else ""
        yield f"{name:>{_MARGIN}} |{''.join(row)}".rstrip()
    yield f"{'':>{_MARGIN}} +{'-' * _COLUMNS}"
    ends = f"{10**shown.left:g}", f"{10**shown.right:,.0f}"
    gap = _COLUMNS - len(ends[0]) - len(ends[1])
    yield f"{'':>{_MARGIN}}  {ends[0]}{'operations a byte'.center(gap)}{ends[1]}"


def _row(shown: Frame, y: float) -> int:
    height = (shown.top - y) / ((shown.top - shown.bottom) or 1)
    return min(_ROWS - 1, max(0, round(height * (_ROWS - 1))))


_WIDTH: Final = 720
_HEIGHT: Final = 420
_EDGE: Final = 60
_OPEN: Final = (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
    'font-family="sans-serif" font-size="12">'
)


def svg(found: dict[str, Any]) -> str:
    """The drawing as one SVG file that needs nothing else."""
    shown = frame(found)
    ridge = math.log10(found["ridge"])
    roof = (shown.left, ridge, shown.right)
    line = " ".join(f"{_x(shown, x):.1f},{_y(shown, shown.roof(x)):.1f}" for x in roof)
    title = f"{found['model']['name']} on {found['device']['name']}: estimated roofline"
    parts = [
        _OPEN,
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_EDGE}" y="24" font-size="15">{escape(title)}</text>',
        *_axes(shown),
        f'<polyline points="{line}" fill="none" stroke="#1f77b4" stroke-width="2"/>',
        *(_dot(shown, point) for point in points(found)),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _axes(shown: Frame) -> Iterator[str]:
    for power in range(int(shown.left), int(shown.right) + 1):
        x = _x(shown, power)
        bottom = _HEIGHT - _EDGE
        yield f'<line x1="{x:.1f}" y1="{_EDGE}" x2="{x:.1f}" y2="{bottom}" stroke="#ddd"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{10.0**power:g}</text>'
    yield (
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 18}" text-anchor="middle">operations a byte; '
        "orange: decode, green: prefill</text>"
    )
    for value in (shown.bottom, shown.top):
        y = _y(shown, value)
        yield f'<text x="{_EDGE - 6}" y="{y:.1f}" text-anchor="end">{10**value / 1e12:.3g}</text>'
    yield f'<text x="{_EDGE}" y="{_EDGE - 14}">TFLOP/s at most</text>'


def _dot(shown: Frame, point: Point) -> str:
    x = math.log10(point.intensity)
    colour = "#ff7f0e" if point.mark == "o" else "#2ca02c"
    return (
        f'<circle cx="{_x(shown, x):.1f}" cy="{_y(shown, shown.roof(x)):.1f}" r="5" '
        f'fill="{colour}"><title>{escape(point.label)}</title></circle>'
    )


def _x(shown: Frame, value: float) -> float:
    return _EDGE + (value - shown.left) / (shown.right - shown.left) * (_WIDTH - 2 * _EDGE)


def _y(shown: Frame, value: float) -> float:
    height = (value - shown.bottom) / ((shown.top - shown.bottom) or 1)
    return _HEIGHT - _EDGE - height * (_HEIGHT - 2 * _EDGE)
