"""What a board consists of, as plain values: queries in panels, panels in rows, rows in a board.

Says what is shown, in which unit and colour; how Grafana writes that down is `grafana`'s matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from dashboards import colours, knobs
from dashboards import queries as q

Kind = Literal["lines", "stack", "heat", "number", "bars", "traces", "text"]

SECONDS: Final = "s"
SHARE: Final = "percentunit"
COUNT: Final = "short"
REQUESTS_PER_SECOND: Final = "reqps"
PER_SECOND: Final = "cps"
HERTZ: Final = "hertz"
CELSIUS: Final = "celsius"
WATT: Final = "watt"
BYTES: Final = "bytes"
BYTES_PER_SECOND: Final = "Bps"

TALLEST: Final = 12
TALLER: Final = 10
TALL: Final = 8
SHORT: Final = 6
"""Heights, in units of the board's grid."""

OBJECTIVE: Final = "objective"
"""What the line of an objective is called."""

NO_COLOURS: Final[Mapping[str, str]] = {}


class Query(NamedTuple):
    """One query and what its answer is called."""

    expr: str
    legend: str
    exemplar: bool = False
    """Whether to show sample traces on it; only histograms have them."""


class Panel(NamedTuple):
    """One picture."""

    kind: Kind
    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    width: int
    """Of 24."""
    colours: Mapping[str, str] = NO_COLOURS
    """A fixed colour for each legend."""
    height: int = TALL
    most: float | None = None
    """Where the axis ends, if not at what is shown."""


class Row(NamedTuple):
    """Panels under one heading, from left to right."""

    title: str
    panels: tuple[Panel, ...]


class Choice(NamedTuple):
    """One more variable of a board: what of it to show."""

    name: str
    title: str
    query: str
    """The query that lists what there is."""


class Board(NamedTuple):
    """One dashboard."""

    uid: str
    title: str
    description: str
    models: str
    """The query that lists the models to choose from."""
    rows: tuple[Row, ...]
    choices: tuple[Choice, ...] = ()


def lines(
    title: str,
    description: str,
    unit: str,
    *queries: Query,
    width: int = 12,
    colours: Mapping[str, str] = NO_COLOURS,
) -> Panel:
    """A line for each series."""
    return Panel("lines", title, description, unit, queries, width, colours)


def stack(
    title: str,
    description: str,
    unit: str,
    *queries: Query,
    width: int = 12,
    colours: Mapping[str, str] = NO_COLOURS,
) -> Panel:
    """Areas that add up to something: never quantiles."""
    return Panel("stack", title, description, unit, queries, width, colours)


def heat(title: str, description: str, metric: q.Metric, *where: str, width: int = 8) -> Panel:
    """Samples by time and bucket of a histogram in seconds."""
    one = Query(q.heat(metric, *where), "{{le}}")
    return Panel("heat", title, description, SECONDS, (one,), width)


def number(title: str, description: str, unit: str, *queries: Query, width: int = 6) -> Panel:
    """One number for all that the board shows."""
    return Panel("number", title, description, unit, queries, width)


def bars(
    title: str,
    description: str,
    unit: str,
    *queries: Query,
    width: int = 12,
    colours: Mapping[str, str] = NO_COLOURS,
) -> Panel:
    """One number for each label, side by side."""
    return Panel("bars", title, description, unit, queries, width, colours)


def traces(title: str, description: str, traceql: str, width: int = 24) -> Panel:
    """A table of the traces that TraceQL finds."""
    return Panel("traces", title, description, SECONDS, (Query(traceql, ""),), width)


def text(title: str, markdown: str, width: int = 24) -> Panel:
    """Something to read, without any query."""
    return Panel("text", title, markdown, "", (), width, height=SHORT)


def quantiles(metric: q.Metric, *where: str) -> tuple[Query, ...]:
    """The quantiles of a latency, with traces on them."""
    return tuple(
        Query(q.quantile(each, metric, where=where), f"p{each * 100:g}", exemplar=True)
        for each in knobs.QUANTILES
    )


def objective(seconds: float) -> Query:
    """The line that a latency should stay under."""
    return Query(f"vector({seconds:g})", OBJECTIVE)


def latency(
    title: str,
    description: str,
    metric: q.Metric,
    *where: str,
    width: int = 12,
    under: float | None = None,
) -> Panel:
    """The quantiles of a latency, against its objective where it has one."""
    goal = () if under is None else (objective(under),)
    shown = (*quantiles(metric, *where), *goal)
    return lines(title, description, SECONDS, *shown, width=width, colours=colours.QUANTILES)
