"""The dots on a latency panel: a real Prometheus finds traces for the panel's own query."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Thread
from urllib.parse import quote

import pytest
from board_files import QUERIES, metrics
from board_traffic import OPENMETRICS, REQUESTS, Served
from programs import eventually
from prometheus_programs import Prometheus

from llm_trace import semconv as s
from llm_trace.core.identity import TraceIdentity
from llm_trace.core.tracer import NoTracer

pytestmark = pytest.mark.services

NO_TRACES = {f"{s.TIME_PER_OUTPUT_CHUNK.prometheus}_bucket": "gaps are added in bulk"}
"""Our histograms that have no exemplars."""


def shows_traces(query):
    """Whether the query asks for traces of histograms of ours that have some."""
    read = metrics(query.expr)
    return query.target["exemplar"] and not any(
        m.startswith("vllm:") or m in NO_TRACES for m in read
    )


class TracerOfEach(NoTracer):
    """Gives every request a trace of its own."""

    def __init__(self):
        self.ids = count(1)

    def begin(self, headers, name):
        """The next trace."""
        return TraceIdentity(next(self.ids), 1)


class Page(BaseHTTPRequestHandler):
    """Answers every scrape with the same page."""

    text = b""

    def do_GET(self):
        """Send the page."""
        self.send_response(200)
        self.send_header("content-type", f"{OPENMETRICS}; charset=utf-8")
        self.send_header("content-length", str(len(self.text)))
        self.end_headers()
        self.wfile.write(self.text)

    def log_message(self, *args):
        """Say nothing."""


@pytest.fixture(scope="module")
def target():
    """The port of a page of every kind of request, each with a trace."""
    process = Served(TracerOfEach())
    process.serve(REQUESTS)
    page = type("PageOfRequests", (Page,), {"text": process.page().encode()})
    with ThreadingHTTPServer(("127.0.0.1", 0), page) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture(scope="module")
def prometheus(prometheus_programs, target, tmp_path_factory):
    """A Prometheus that has scraped that page and keeps exemplars."""
    running = Prometheus(prometheus_programs, target, tmp_path_factory.mktemp("exemplars"))
    try:
        seen = f"query?query={s.REQUESTS.prometheus}"
        eventually(lambda: running.api(seen)["result"], "nothing was scraped", log=running.program)
        yield running
    finally:
        running.stop()


@pytest.mark.parametrize("query", [q for q in QUERIES if shows_traces(q)], ids=str)
def test_a_quantile_leads_to_traces(prometheus, query):
    """Each exemplar of the panel's query carries a trace and a span, and nothing else."""
    found = prometheus.api(f"query_exemplars?query={quote(query.expr)}&start=0&end=9999999999")
    labels = [exemplar["labels"] for series in found for exemplar in series["exemplars"]]

    assert labels
    assert all({"trace_id", "span_id"} == set(each) for each in labels)
