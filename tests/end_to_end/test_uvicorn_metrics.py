"""The metrics page of a real server: status, format and exemplars by what the scraper accepts."""

from __future__ import annotations

import pytest
from programs import eventually
from prometheus_programs import Prometheus
from stamped_client import ask
from uvicorn_server import CHAT, exports_to, serving

from llm_trace import semconv as s

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)


@pytest.fixture
def server(tap, programs, tmp_path):
    """A server that has answered, so that its histograms hold exemplars."""
    server = serving(programs, tmp_path, **exports_to(tap.endpoint))
    server.trace_id = ask(server.port, CHAT, {"tokens": 3, "stream": True}).trace_id
    return server


@pytest.mark.parametrize("path", ["/metrics", "/metrics/"])
def test_both_paths_answer(server, path):
    """Scrapers do not follow redirects: 200 with and without the slash."""
    answer = ask(server.port, path)

    assert answer.status == 200
    assert s.REQUESTS.prometheus.encode() in answer.body
    assert b"_created" not in b"".join(
        line for line in answer.body.splitlines() if line.startswith((b"llm_trace", b"gen_ai"))
    )


@pytest.mark.parametrize("accept", [OPENMETRICS, PROMETHEUS])
def test_openmetrics_carries_exemplars(server, accept):
    """A scraper that accepts OpenMetrics gets its content type, its end mark and exemplars."""
    answer = ask(server.port, "/metrics", headers={"accept": accept})

    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.body.endswith(b"# EOF\n")
    assert f'trace_id="{server.trace_id}"'.encode() in answer.body


@pytest.mark.parametrize("accept", ["text/plain", "*/*", "text/html;q=0.9", None])
def test_classic_text_carries_none(server, accept):
    """Everybody else gets the classic text, in which an exemplar would break the scrape."""
    headers = {} if accept is None else {"accept": accept}
    answer = ask(server.port, "/metrics", headers=headers)

    assert answer.headers["content-type"].startswith("text/plain")
    assert b"trace_id" not in answer.body
    assert b"# EOF" not in answer.body


@pytest.mark.services
def test_an_exemplar_in_prometheus_leads_to_its_trace(
    server, tap, prometheus_programs, tmp_path, programs
):
    """What a real Prometheus keeps beside a bucket is the id of a trace that was exported."""
    folder = tmp_path / "prometheus"
    folder.mkdir()
    prometheus = Prometheus(prometheus_programs, server.port, folder)
    programs.append(prometheus)
    series = f"{s.TIME_TO_FIRST_TOKEN.prometheus}_bucket"
    query = f"query_exemplars?query={series}&start=0&end=9999999999"
    found = eventually(lambda: prometheus.api(query), "Prometheus kept no exemplar", log=server)
    labels = [exemplar["labels"] for one in found for exemplar in one["exemplars"]]

    root = tap.root(server.trace_id)
    assert labels == [{"trace_id": root.trace_id, "span_id": root.span_id}]
