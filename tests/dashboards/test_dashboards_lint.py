"""House rules for boards, checked on the JSON that Grafana will read."""

from __future__ import annotations

import re
from itertools import combinations

import promql_parser
import pytest
from board_files import BOARDS, PANELS, QUERIES, metrics, nodes, rules
from known_series import KNOWN, LABELS

from dashboards import colours, knobs
from llm_trace import semconv as s

VARIABLES = {"prometheus": "${datasource}", "tempo": "${tempo}"}
GROWTH_OF_BUCKETS = r"sum by \(le\) \(increase\(\w+_bucket\{.*\[\$__rate_interval\]"
UNITS = {
    *("s", "percentunit", "short", "reqps", "cps"),
    *("hertz", "celsius", "watt", "bytes", "Bps"),
}

each_panel = pytest.mark.parametrize(
    "panel", [pytest.param(panel, id=f"{uid}: {panel['title']}") for uid, panel in PANELS]
)
each_query = pytest.mark.parametrize("query", QUERIES, ids=str)
each_board = pytest.mark.parametrize("board", BOARDS, ids=lambda board: board["uid"])
each_rule = pytest.mark.parametrize(
    "rule",
    [*rules("rules.yaml"), *rules("alerts.yaml")],
    ids=lambda rule: rule.get("record") or f"{rule['alert']} {rule['labels']['severity']}",
)


def references(value):
    """Every data source that is named anywhere in `value`."""
    if isinstance(value, dict):
        if "datasource" in value:
            yield value["datasource"]
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from references(each)


def bare(node):
    """The node without the brackets around it."""
    while isinstance(node, promql_parser.ParenExpr):
        node = node.expr
    return node


def guarded(divisor):
    """Whether the divisor cannot be zero: it is compared with zero, clamped, or a number."""
    node = bare(divisor)
    if isinstance(node, promql_parser.BinaryExpr):
        return str(node.op) == ">" and getattr(node.rhs, "val", None) == 0
    if isinstance(node, promql_parser.Call):
        return node.func.name == "clamp_min"
    return isinstance(node, promql_parser.NumberLiteral)


def unguarded(expr):
    """Divisors in `expr` that may be zero."""
    found = (node for node in nodes(expr) if isinstance(node, promql_parser.BinaryExpr))
    return [str(n.rhs) for n in found if str(n.op) == "/" and not guarded(n.rhs)]


# --- boards -----------------------------------------------------------------------------------


@each_board
def test_a_board_can_be_imported_anywhere(board):
    """A board has no inputs, no id, a uid of its own, and every data source is a variable."""
    named = [ref for ref in references(board) if ref is not None]

    assert "__inputs" not in board
    assert board["id"] is None
    assert re.fullmatch(r"llm-trace-[a-z]+", board["uid"])
    assert board["description"]
    assert named
    assert all(VARIABLES[ref["type"]] == ref["uid"] for ref in named)


@each_board
def test_a_board_lets_its_data_sources_be_chosen(board):
    """A board has one variable for Prometheus and one for Tempo."""
    variables = board["templating"]["list"]
    kinds = {v["name"]: v["query"] for v in variables if v["type"] == "datasource"}

    assert {"datasource": "prometheus", "tempo": "tempo"} == kinds


@each_board
def test_the_variables_of_a_board_read_known_metrics(board):
    """What a variable lists comes from a metric that exists."""
    queries = [v["query"] for v in board["templating"]["list"] if v["type"] == "query"]
    read = {name for q in queries for name in re.findall(r"[a-z_]+:?[a-z_]+_[a-z_]+", q)}

    assert read - {"label_values", "__name__", "gen_ai_request_model", "model_name"} <= KNOWN


@each_board
def test_panels_do_not_overlap_and_fit_the_grid(board):
    """Every two panels have places of their own within 24 columns."""
    places = [panel["gridPos"] for panel in board["panels"]]

    assert all(place["x"] + place["w"] <= 24 for place in places)
    assert not any(overlap(a, b) for a, b in combinations(places, 2))


def overlap(a, b):
    """Whether two places share a cell of the grid."""
    across = a["x"] < b["x"] + b["w"] and b["x"] < a["x"] + a["w"]
    return across and a["y"] < b["y"] + b["h"] and b["y"] < a["y"] + a["h"]


def test_boards_are_written_in_the_classic_schema():
    """Each board says the schema of Grafana 11 and has its panels in a list."""
    assert all(board["schemaVersion"] == 39 and board["panels"] for board in BOARDS)


# --- panels -----------------------------------------------------------------------------------


@each_panel
def test_a_panel_explains_itself(panel):
    """A panel has a title, a description that is a sentence, a known unit and a query."""
    traces = panel["type"] == "table"

    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert panel["fieldConfig"]["defaults"]["noValue"] == ("–" if traces else "no data")
    assert panel["targets"]


@each_panel
def test_phases_have_the_same_colour_on_every_panel(panel):
    """What is drawn by phase has the fixed colour of each phase."""
    by_phase = any("{{llm_trace_phase}}" == t.get("legendFormat") for t in panel["targets"])
    fixed = {
        override["matcher"]["options"]: said["value"]["fixedColor"]
        for override in panel["fieldConfig"]["overrides"]
        for said in override["properties"]
        if said["id"] == "color"
    }

    assert not by_phase or fixed == colours.PHASES


def test_every_phase_outcome_and_start_state_has_a_colour_of_its_own():
    """The tables of colours cover the vocabulary, and no colour means two things in one table."""
    tables = {
        (*s.PHASES, s.OTHER): colours.PHASES,
        s.OUTCOMES: colours.OUTCOMES,
        s.START_STATES: colours.START_STATES,
    }

    for words, table in tables.items():
        assert set(words) == set(table)
        assert len(set(table.values())) == len(table)


@each_panel
def test_a_stack_adds_up(panel):
    """No panel stacks quantiles: they add up to nothing."""
    custom = panel["fieldConfig"]["defaults"].get("custom", {})
    stacked = custom.get("stacking", {}).get("mode") == "normal"
    quantiles = [t for t in panel["targets"] if "histogram_quantile" in t.get("expr", "")]

    assert not (stacked and quantiles)


@each_panel
def test_a_heat_map_counts_each_interval(panel):
    """A heat map asks for heat-map format and sums the growth of buckets by bound."""
    if panel["type"] != "heatmap":
        return

    (target,) = panel["targets"]

    assert "heatmap" == target["format"]
    assert re.match(GROWTH_OF_BUCKETS, target["expr"])
    assert panel["options"]["calculate"] is False


# --- queries ----------------------------------------------------------------------------------


@each_query
def test_a_query_reads_metrics_that_exist(query):
    """Each metric is in the vocabulary, on vLLM's recorded page, or recorded by our rules."""
    assert metrics(query.expr) <= KNOWN


@each_query
def test_a_query_matches_labels_that_its_metric_has(query):
    """Each label that a selector matches is one of that metric's, or of the scrape."""
    selectors = (n for n in nodes(query.expr) if isinstance(n, promql_parser.VectorSelector))
    wrong = [
        (selector.name, matcher.name)
        for selector in selectors
        for matcher in selector.matchers.matchers
        if matcher.name not in LABELS[selector.name]
    ]

    assert [] == wrong


@each_query
def test_a_query_takes_its_window_from_the_board(query):
    """Lines use the rate interval, single numbers the shown range: never a fixed window."""
    unquoted = re.sub(r'"[^"]*"', "", query.target["expr"])
    written = set(re.findall(r"\[([^\]]+)\]", unquoted))
    allowed = {"$__range"} if query.target["instant"] else {"$__rate_interval"}

    assert written <= allowed


@each_query
def test_a_query_guards_its_divisors(query):
    """No ratio can divide by zero."""
    assert [] == unguarded(query.expr)


@each_query
def test_a_quantile_is_taken_of_summed_bucket_rates(query):
    """A quantile reads sum by (le, ...) of rate() and drops NaN, and nothing averages it."""
    expr = query.target["expr"]
    taken = re.findall(r"histogram_quantile\([\d.]+, sum by \(le[^)]*\) \(rate\(\w\S*_bucket", expr)

    assert len(taken) == expr.count("histogram_quantile")
    assert "histogram_quantile" not in expr or expr.endswith(">= 0")
    assert not re.search(r"avg[^(]*\([^)]*histogram_quantile", expr)


@each_query
def test_a_quantile_shows_sample_traces(query):
    """Exemplars are asked for on quantiles, and on nothing else."""
    assert ("histogram_quantile" in query.target["expr"]) == query.target["exemplar"]


@each_query
def test_seconds_are_shown_as_seconds_and_shares_as_percent(query):
    """A quantile has the unit of what was sampled; a gauge of a share is never summed."""
    unit = query.panel["fieldConfig"]["defaults"]["unit"]
    expr = query.target["expr"]

    if "histogram_quantile" in expr:
        assert ("percentunit" if "_ratio_bucket" in expr else "s") == unit
    if "_perc" in expr:
        assert "percentunit" == unit
        assert "sum" not in expr


# --- rules ------------------------------------------------------------------------------------


@each_rule
def test_a_rule_reads_metrics_that_exist_and_guards_its_divisors(rule):
    """Each metric of a rule exists and no ratio of it can divide by zero."""
    assert metrics(rule["expr"]) <= KNOWN
    assert [] == unguarded(rule["expr"])


@pytest.mark.parametrize("rule", rules("alerts.yaml"), ids=lambda rule: rule["alert"])
def test_an_alert_says_how_bad_it_is_what_is_wrong_and_what_to_do(rule):
    """An alert has a known severity, a summary, a description with a value, and a runbook."""
    notes = rule["annotations"]

    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert notes["summary"].endswith(".")
    assert "$value" in notes["description"]
    assert notes["runbook_url"].endswith(f"/{rule['alert']}.md")


def test_the_ttft_objective_is_a_bound_of_buckets_and_bands():
    """The requests that miss the objective are exactly those of the bands above it."""
    assert knobs.TTFT_SECONDS in s.WAIT_BUCKETS
    assert knobs.TTFT_SECONDS in s.TTFT_BANDS
    assert knobs.TPOT_SECONDS in s.TOKEN_BUCKETS


def test_the_matcher_of_a_bound_takes_that_bound_alone():
    """The bound 1 is found as 1 and as 1.0, and 160 is not taken for it."""
    exprs = " ".join(rule["expr"] for rule in rules("rules.yaml"))
    matchers = set(re.findall(r'le=~"([^"]+)"', exprs))
    taken = {f"{b:g}" for b in s.WAIT_BUCKETS for m in matchers if re.fullmatch(m, f"{b:g}")}

    assert {"1", "0.1"} == taken
