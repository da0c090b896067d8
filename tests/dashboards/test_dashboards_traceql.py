"""TraceQL of the boards: Grafana's own grammar takes it, and it finds the traces it is about."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest
from board_files import PANELS, ROOT
from board_traces import Traces, find
from board_traffic import REQUESTS, Request, Served

from llm_trace import semconv as s

RENDER = ROOT / "render"
TABLES = {
    f"{uid}: {panel['title']}": panel["targets"][0]["query"]
    for uid, panel in PANELS
    if panel["type"] == "table"
}
LONG_PREFILL = Request(prefill=2_000)
EXPECTED = {
    "llm-trace-ttft: Slow requests": 4,
    "llm-trace-slow: Slow requests, and what each waited for": 4,
    "llm-trace-slow: Slow because they queued": 1,
    "llm-trace-slow: Slow because of prefill": 1,
    "llm-trace-slow: Failed requests": 1,
    "llm-trace-slow: Cancelled requests": 1,
    "llm-trace-slow: Cold requests": 1,
}
"""Of one request of each kind, and one more with a long prefill."""

each_table = pytest.mark.parametrize("title", TABLES)


@pytest.fixture(scope="module")
def roots():
    """The roots of the traces of one request of each kind, and one with a long prefill."""
    traces = Traces()
    Served(traces.tracer(), traces.observer()).serve((*REQUESTS, LONG_PREFILL))
    return traces.roots


def refused(*queries):
    """What Grafana's grammar for TraceQL refuses of these."""
    node = shutil.which("node")
    if node is None or not (RENDER / "node_modules" / "@grafana" / "lezer-traceql").is_dir():
        pytest.skip("there is no grammar: run `npm ci` in dashboards/render")
    lines = "".join(f"{json.dumps(query)}\n" for query in queries)
    command = [node, str(RENDER / "traceql.mjs")]
    return subprocess.run(command, input=lines, capture_output=True, text=True, check=False).stdout


def test_the_grammar_takes_every_query():
    """Nothing in any table's query is a mistake to Grafana's own parser."""
    assert "" == refused(*TABLES.values())


def test_the_grammar_sees_a_mistake():
    """A query that lacks a value or a bracket is refused: the test above can fail."""
    said = refused("{ span.a > } | select(span.b)", "{ span.a > 1 | select(span.b)")

    assert 2 == len(said.splitlines())


@each_table
def test_a_query_names_attributes_that_spans_have(title):
    """Each attribute is a word of the vocabulary, or a part of the time to first token."""
    named = set(re.findall(r"span\.([\w.]+)", TABLES[title]))
    parts = {f"{s.TTFT_PHASE_PREFIX}{phase}" for phase in s.PHASES}

    assert named <= {v for v in vars(s).values() if isinstance(v, str)} | parts


@each_table
def test_a_table_finds_the_requests_that_it_is_about(title, roots):
    """On real traces the query finds as many as it should, by a stand-in for Tempo."""
    found, _ = find(TABLES[title].replace("$model", ".*"), roots)

    assert EXPECTED[title] == len(found)


@each_table
def test_every_column_of_a_table_is_filled_by_some_request(title, roots):
    """No column is shown that no trace of the table can have."""
    found, columns = find(TABLES[title].replace("$model", ".*"), roots)
    filled = {name for root in found for name in root.attributes}

    assert set(columns) - filled <= {s.PREEMPTIONS, s.TTFT}, "only those that are rare"


def test_every_table_has_its_number():
    """Each table is expected to find something here."""
    assert set(EXPECTED) == set(TABLES)
