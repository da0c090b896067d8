"""Draws boards as Grafana's JSON, in the classic schema, through Grafana's own SDK.

Data sources are template variables everywhere, so that a board works wherever it is imported.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    heatmap,
    stat,
    table,
    tempo,
    timeseries,
)
from grafana_foundation_sdk.builders import dashboard as d
from grafana_foundation_sdk.builders import prometheus as prom
from grafana_foundation_sdk.builders import text as words
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as values
from grafana_foundation_sdk.models import dashboard as m
from grafana_foundation_sdk.models import heatmap as heat_values
from grafana_foundation_sdk.models import prometheus as prom_values
from grafana_foundation_sdk.models import tempo as tempo_values
from grafana_foundation_sdk.models import text as word_values

from dashboards import knobs, traceql, vllm
from dashboards.panels import BYTES, COUNT, OBJECTIVE, SHARE, Board, Choice, Panel, Query, Row
from dashboards.queries import label
from llm_trace import semconv as s

SCHEMA: Final = 39
"""The dashboard schema of Grafana 11.0; later ones bring a board up to date as they load it."""

FIRING: Final = 'ALERTS{alertname=~"LlmTrace.+",alertstate="firing"}'
"""Prometheus's own series for alerts that fire."""

WIDE: Final = 12
"""From this width on the legend is a table at the side; below, a line at the bottom."""
GREY: Final = "#7B7B7B"
FROM_ZERO: Final = (SHARE, BYTES)
"""Units whose lines are read against nothing: an axis that starts elsewhere makes noise tall."""

PROMETHEUS: Final = values.DataSourceRef("prometheus", "${datasource}")
TEMPO: Final = values.DataSourceRef("tempo", "${tempo}")

JOBS: Final = f'label_values({{__name__=~"{s.REQUESTS_ACTIVE.prometheus}|{vllm.RUNNING}"}}, job)'
"""Scrape jobs in which llm_trace or vLLM shows metrics."""

Builder = Any
"""One of the SDK's builders: those of panels have the same methods and no common type."""


# --- panels -----------------------------------------------------------------------------------


def _lines(panel: Panel) -> Builder:
    legend = _table() if panel.width >= WIDE else _list()
    tooltip = common.VizTooltipOptions().mode(values.TooltipDisplayMode.MULTI)
    tooltip = tooltip.sort(values.SortOrder.DESCENDING)
    drawn = timeseries.Panel().legend(legend).tooltip(tooltip).line_width(2).fill_opacity(0)
    return drawn.min(0) if panel.unit in FROM_ZERO else drawn


def _table() -> Builder:
    legend = common.VizLegendOptions().show_legend(True).calcs(["lastNotNull"])
    legend = legend.display_mode(values.LegendDisplayMode.TABLE)
    return legend.placement(values.LegendPlacement.RIGHT)


def _list() -> Builder:
    legend = common.VizLegendOptions().show_legend(True).calcs([])
    legend = legend.display_mode(values.LegendDisplayMode.LIST)
    return legend.placement(values.LegendPlacement.BOTTOM)


def _stack(panel: Panel) -> Builder:
    stacking = common.StackingConfig().mode(values.StackingMode.NORMAL).group("A")
    return _lines(panel).stacking(stacking).line_width(0).fill_opacity(80).min(0)


def _heat(_panel: Panel) -> Builder:
    colour = heatmap.HeatmapColorOptions().mode(heat_values.HeatmapColorMode.SCHEME)
    colour = colour.scheme("Oranges").steps(64).exponent(0.5)
    axis = heatmap.YAxisConfig().unit("s").axis_placement(values.AxisPlacement.LEFT)
    return heatmap.Panel().calculate(False).color(colour).y_axis(axis)


def _number(_panel: Panel) -> Builder:
    return stat.Panel().graph_mode(values.BigValueGraphMode.NONE).reduce_options(_last())


def _bars(_panel: Panel) -> Builder:
    drawn = bargauge.Panel().display_mode(values.BarGaugeDisplayMode.BASIC)
    drawn = drawn.orientation(values.VizOrientation.HORIZONTAL).reduce_options(_last())
    drawn = drawn.name_placement(values.BarGaugeNamePlacement.TOP)  # beside it, long names are cut
    return drawn.text(common.VizTextDisplayOptions().title_size(13).value_size(14))


def _traces(_panel: Panel) -> Builder:
    return table.Panel()


def _last() -> Builder:
    return common.ReduceDataOptions().calcs(["lastNotNull"]).values(False)


DRAW: Final[Mapping[str, Callable[[Panel], Builder]]] = {
    "lines": _lines,
    "stack": _stack,
    "heat": _heat,
    "number": _number,
    "bars": _bars,
    "traces": _traces,
}
INSTANT: Final = ("number", "bars")
"""Kinds that show one number: their queries are asked once."""


def _text(panel: Panel) -> Builder:
    """Something to read: its words are its content, and it asks nothing."""
    drawn = words.Panel().title(panel.title).span(panel.width).height(panel.height)
    return drawn.mode(word_values.TextMode.MARKDOWN).content(panel.description)


def _panel(panel: Panel) -> Builder:
    if panel.kind == "text":
        return _text(panel)
    drawn = DRAW[panel.kind](panel).title(panel.title).description(panel.description)
    drawn = drawn.unit(panel.unit).no_value(_nothing(panel)).span(panel.width).height(panel.height)
    drawn = drawn.thresholds(_plain()).datasource(TEMPO if panel.kind == "traces" else PROMETHEUS)
    if panel.most is not None:
        drawn = drawn.max(panel.most)
    for legend, colour in panel.colours.items():
        drawn = drawn.override_by_name(legend, [_fixed(colour), *_dashes(legend)])
    if panel.kind == "traces":
        drawn = _columns(drawn, panel)
    for number, query in enumerate(panel.queries):
        drawn = drawn.with_target(_target(panel, query).ref_id(chr(ord("A") + number)))
    return drawn


def _nothing(panel: Panel) -> str:
    """What stands for a value that is not there, which in a table is usual."""
    return "–" if panel.kind == "traces" else "no data"


def _columns(drawn: Builder, panel: Panel) -> Builder:
    """Short titles, and counts as such, for the attributes that the table shows."""
    shown = traceql.columns(panel.queries[0].expr)
    for attribute in shown:
        said = [m.DynamicConfigValue("displayName", traceql.TITLES[attribute])]
        if attribute in traceql.COUNTS:
            said.append(m.DynamicConfigValue("unit", COUNT))
        drawn = drawn.override_by_name(attribute, said)
    return drawn


def _plain() -> Builder:
    """One step: a number is judged by its objective's line and by the alerts."""
    config = d.ThresholdsConfig().mode(m.ThresholdsMode.ABSOLUTE)
    return config.steps([m.Threshold(None, GREY)])


def _fixed(colour: str) -> m.DynamicConfigValue:
    return m.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": colour})


def _dashes(legend: str) -> list[m.DynamicConfigValue]:
    dashes = {"fill": "dash", "dash": [10, 10]}
    return [m.DynamicConfigValue("custom.lineStyle", dashes)] if legend == OBJECTIVE else []


def _target(panel: Panel, query: Query) -> Builder:
    if panel.kind == "traces":
        asked = tempo.Dataquery().datasource(TEMPO).query_type("traceql").query(query.expr)
        return asked.table_type(tempo_values.SearchTableType.SPANS).limit(20)
    asked = prom.Dataquery().datasource(PROMETHEUS).expr(query.expr)
    asked = asked.legend_format(query.legend).editor_mode(prom_values.QueryEditorMode.CODE)
    asked = asked.instant() if panel.kind in INSTANT else asked.range()
    if panel.kind == "heat":
        asked = asked.format(prom_values.PromQueryFormat.HEATMAP)
    return asked.exemplar(query.exemplar)


# --- boards -----------------------------------------------------------------------------------


def draw(board: Board) -> str:
    """The board's JSON."""
    drawn = d.Dashboard(board.title).uid(board.uid).description(board.description)
    drawn = drawn.tags([knobs.TAG]).time(knobs.SINCE, "now").refresh(knobs.REFRESH)
    drawn = drawn.timezone("browser").tooltip(m.DashboardCursorSync.CROSSHAIR)
    drawn = drawn.editable().link(_others()).variables(_variables(board))
    drawn = drawn.annotation(_firing())
    for row in board.rows:
        _add(drawn, row)
    return _json(drawn)


def _add(drawn: d.Dashboard, row: Row) -> None:
    drawn.with_row(d.Row(row.title))
    for panel in row.panels:
        drawn.with_panel(_panel(panel))


def _json(drawn: d.Dashboard) -> str:
    plain = json.loads(json.dumps(drawn.build(), cls=JSONEncoder))
    panels = [{**panel, "id": number} for number, panel in enumerate(plain["panels"], 1)]
    whole = {**plain, "id": None, "schemaVersion": SCHEMA, "panels": panels}
    return json.dumps(whole, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _others() -> Builder:
    link = d.DashboardLink("llm_trace").type(m.DashboardLinkType.DASHBOARDS)
    link = link.placement("")  # in sight, not in a menu
    return link.tags([knobs.TAG]).as_dropdown(True).include_vars(True).keep_time(True)


def _firing() -> Builder:
    """Marks on every panel since when which of our alerts fires."""
    alerts = d.AnnotationQuery().name("Alerts").datasource(PROMETHEUS).enable(True)
    alerts = alerts.expr(FIRING).icon_color("red").step("30s")
    return alerts.title_format("{{alertname}}").text_format("{{" + label(s.PHASE) + "}}")


def _variables(board: Board) -> list[Builder]:
    return [
        d.DatasourceVariable("datasource").label("Prometheus").type("prometheus"),
        d.DatasourceVariable("tempo").label("Tempo").type("tempo"),
        *(_choice(each) for each in (Choice("job", "Job", JOBS), _models(board), *board.choices)),
    ]


def _models(board: Board) -> Choice:
    return Choice("model", "Model", board.models)


def _choice(one: Choice) -> Builder:
    everything = m.VariableOption(text=["All"], value=["$__all"], selected=True)
    choice = d.QueryVariable(one.name).label(one.title).query(one.query).definition(one.query)
    choice = choice.datasource(PROMETHEUS).refresh(m.VariableRefresh.ON_TIME_RANGE_CHANGED)
    choice = choice.sort(m.VariableSort.ALPHABETICAL_ASC).multi(True)
    return choice.include_all(True).all_value(".*").current(everything)
