"""Grafana's provisioning: closed, complete, and linked both ways between metrics and traces."""

from __future__ import annotations

import configparser
import json
import re

import promql_parser
import pytest
from stack_files import (
    DATASOURCES,
    DEPLOY,
    GENERATED,
    PROMETHEUS,
    PROVISIONING,
    SERVICES,
    mounts,
    read,
)

from llm_trace import semconv as s

UIDS = {source["uid"]: source for source in DATASOURCES}
TYPED = {source["type"]: source for source in DATASOURCES}
LINKS = TYPED["tempo"]["jsonData"]["tracesToMetrics"]
BOARDS = sorted((GENERATED / "boards").glob("*.json"))
OURS = {metric.prometheus: metric for metric in s.METRICS}


def references(value):
    """Every data source that a configuration refers to."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "datasourceUid":
                yield inner
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_every_data_source_that_is_linked_exists():
    """A link leads to one of the provisioned data sources."""
    found = set(references(DATASOURCES))

    assert found
    assert found <= UIDS.keys()


def test_a_dot_on_a_panel_leads_to_its_trace():
    """The label of our exemplars is the one that the data source looks for, and leads to Tempo."""
    (link,) = TYPED["prometheus"]["jsonData"]["exemplarTraceIdDestinations"]

    assert "trace_id" == link["name"]
    assert "tempo" == UIDS[link["datasourceUid"]]["type"]


def test_a_span_leads_to_metrics():
    """The tags are our attributes and their labels, and lead to Prometheus."""
    assert "prometheus" == UIDS[LINKS["datasourceUid"]]["type"]
    assert [{"key": s.REQUEST_MODEL, "value": s.REQUEST_MODEL.replace(".", "_")}] == LINKS["tags"]


@pytest.mark.parametrize("query", LINKS["queries"], ids=lambda query: query["name"])
def test_a_query_of_a_span_reads_our_metrics(query):
    """Each query is PromQL over a metric of ours that has the tag as a label."""
    assert not re.search(r"(?<!\$)\$(?!\$)", query["query"]), (
        "a single $ is a variable of Grafana's"
    )
    expr = query["query"].replace("$$__tags", 'gen_ai_request_model="m"')
    expr = expr.replace("$$__rate_interval", "5m")
    promql_parser.parse(expr)
    (name,) = re.findall(r"\b(?:gen_ai_server|llm_trace)_\w+(?=\{)", expr)

    assert s.REQUEST_MODEL in OURS[re.sub(r"_bucket$", "", name)].labels


@pytest.mark.parametrize("source", DATASOURCES, ids=lambda source: source["name"])
def test_a_data_source_is_a_service(source):
    """Its address is a service of the stack, on a port that Prometheus scrapes it on."""
    host, port = re.fullmatch(r"http://([\w-]+):(\d+)", source["url"]).groups()
    jobs = {job["job_name"]: job for job in PROMETHEUS["scrape_configs"]}
    (target,) = jobs[host]["static_configs"][0]["targets"]

    assert host in SERVICES
    assert target.endswith(f":{port}")


def test_the_boards_are_mounted_where_they_are_looked_for():
    """The provider's folder is the generated boards'."""
    (provider,) = read(PROVISIONING / "dashboards" / "llm_trace.yaml")["providers"]

    assert "./dashboards/generated/boards" == mounts("grafana")[provider["options"]["path"]]
    assert BOARDS


@pytest.mark.parametrize("board", BOARDS, ids=lambda path: path.stem)
def test_a_board_finds_a_data_source_for_each_of_its_variables(board):
    """Every kind of data source that a board lets one choose is provisioned."""
    variables = json.loads(board.read_text(encoding="utf-8"))["templating"]["list"]
    kinds = {variable["query"] for variable in variables if variable["type"] == "datasource"}

    assert kinds
    assert kinds <= TYPED.keys()


@pytest.fixture
def settings():
    """grafana.ini."""
    parser = configparser.ConfigParser(comment_prefixes=(";",))
    parser.read(DEPLOY / "grafana" / "grafana.ini", encoding="utf-8")
    return parser


def test_nobody_gets_in_without_a_password(settings):
    """No anonymous viewer, no sign-up, and no password in the file."""
    assert not settings.getboolean("auth.anonymous", "enabled")
    assert not settings.getboolean("users", "allow_sign_up")
    assert not settings.has_option("security", "admin_password")
    assert ":?" in SERVICES["grafana"]["environment"]["GF_SECURITY_ADMIN_PASSWORD"]


def test_nothing_is_reported_home(settings):
    """No usage report, no look for updates, no snapshots elsewhere."""
    assert {"false"} == set(settings["analytics"].values())
    assert not settings.getboolean("snapshots", "external_enabled")


def test_the_first_screen_says_which_wait_grew(settings):
    """The home board is the one that on-call opens first, and exists."""
    home = settings["dashboards"]["default_home_dashboard_path"]

    assert home == "/etc/grafana/boards/llm-trace-ttft.json"
    assert GENERATED / "boards" / home.rpartition("/")[2] in BOARDS
