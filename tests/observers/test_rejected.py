"""Answers of a collector that are looked at beside the exporters."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from llm_trace.core import faults
from llm_trace.observers import rejected


@pytest.fixture(autouse=True)
def counted(monkeypatch):
    """Nothing rejected and nothing said yet."""
    monkeypatch.setattr(faults, "spans", Counter())
    monkeypatch.setattr(rejected, "_said", [])


def answer(spans, why=""):
    """What a collector says of an export."""
    made = ExportTraceServiceResponse()
    made.partial_success.rejected_spans = spans
    made.partial_success.error_message = why
    return made


def over_http(content, kind="application/x-protobuf", *, ok=True):
    """The same as an HTTP response."""
    return SimpleNamespace(ok=ok, headers={"content-type": kind}, content=content)


@pytest.mark.parametrize(
    ("response", "lost"),
    [
        (over_http(answer(3).SerializeToString()), 3),
        (over_http(answer(0).SerializeToString()), 0),
        (over_http(answer(-5).SerializeToString()), 0),
        (over_http(b""), 0),
        (over_http(b"\xff\xff"), 0),
        (over_http(b"{}", "application/json"), 0),
        (over_http(answer(3, "x" * 70_000).SerializeToString()), 0),
        (over_http(answer(3).SerializeToString(), ok=False), 0),
    ],
    ids=["part", "all", "nonsense", "empty", "broken", "json", "long", "refused"],
)
def test_what_is_rejected_of_an_export_is_counted(response, lost):
    """Over HTTP; an answer that cannot be read is a success like any."""
    rejected.listening_session().hooks["response"][0](response, timeout=1)

    assert faults.spans["rejected"] == lost


def test_an_exporter_that_connects_anew_is_still_listened_to(caplog):
    """Over gRPC the stub is made again with each channel; the reason is said once, in one line."""
    stub = SimpleNamespace(Export=lambda **_call: answer(2, "too\n\x1b[2Jlong"))
    exporter = SimpleNamespace(_stub=lambda _channel: stub, _client=stub)
    rejected.listen(exporter)

    for client in (exporter._client, exporter._stub("channel")):
        assert client.Export(request=1).partial_success.rejected_spans == 2

    assert faults.spans["rejected"] == 4
    (said,) = caplog.messages
    assert "rejected 2 spans: too??[2Jlong." in said


def test_an_exporter_of_another_version_is_left_alone():
    """Its insides are not known, so nothing is counted."""
    exporter = SimpleNamespace(_client=None)

    rejected.listen(exporter)

    assert vars(exporter) == {"_client": None}


def test_a_session_that_the_exporter_makes_is_left_alone(monkeypatch):
    """A credential provider is asked by the exporter itself."""
    monkeypatch.setenv("OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER", "mine")

    assert rejected.listening_session() is None


@pytest.mark.parametrize(
    ("status", "follow", "arrives"),
    [
        (200, True, True),
        (301, False, False),
        (301, True, False),
        (308, False, False),
        (308, True, True),
        (304, False, False),
    ],
)
def test_an_export_that_is_sent_elsewhere_is_no_success(status, follow, arrives):
    """Whether the exporter's version follows a redirect, or takes it for a success."""
    posted = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            sent_on = self.path == "/v1/traces" and status != 200
            self.send_response(status if sent_on else 200)
            if sent_on:
                self.send_header("location", "/elsewhere")
            self.send_header("content-length", "0")
            self.end_headers()

        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            if self.path != "/v1/traces" or status == 200:
                posted.append(self.path)
            self.do_GET()

        def log_message(self, *_):
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/v1/traces"
    try:
        with rejected.strict_session("TRACES") as session:
            session.trust_env = False
            with nullcontext() if arrives else pytest.raises(OSError, match="points elsewhere"):
                session.post(url, data=b"spans", allow_redirects=follow)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

    assert bool(posted) == arrives
