"""`llm-trace doctor` against real sockets: receivers that are up, down, wrong or unwilling."""

from __future__ import annotations

import json
import os
import socket
import threading
from concurrent import futures
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from llm_trace import semconv as s
from llm_trace.cli import main
from llm_trace.observers.metrics import instruments


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    """No variable of the machine's own."""
    for name in tuple(os.environ):
        if name.startswith(("OTEL_", "LLM_TRACE_", "PROMETHEUS_", "VLLM_", "WEB_")):
            monkeypatch.delenv(name)


@pytest.fixture
def run(capsys, monkeypatch):
    """A function that runs the command under some variables: status and findings."""

    def run(*args, **environ):
        for name, text in environ.items():
            monkeypatch.setenv(name, text)
        status = main(["doctor", *args, "--json"])
        found = json.loads(capsys.readouterr().out)
        assert found["schema"] == "llm-trace.doctor/1"
        return status, found["findings"]

    return run


def about(findings, check):
    """What was found of one thing."""
    return [(x["level"], x["said"]) for x in findings if x["check"] == check]


@contextmanager
def answering(status=200, body=b"", **headers):
    """An HTTP server that gives one answer to everything; its address, and what it was sent."""
    heard = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.rfile.read(int(self.headers.get("content-length", 0)))
            heard.append((self.command, self.path, dict(self.headers)))
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - the name that http.server wants

        def log_message(self, *_):
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", heard
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def grpc_server():
    """A gRPC server without services; its address."""
    with futures.ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.stop(None).wait()


def free_port():
    """A port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


HTTP = {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}


def test_a_receiver_that_takes_exports_is_well(run):
    """It was sent an empty one, at the path of traces, with the headers that are set."""
    with answering() as (url, heard):
        status, found = run(
            OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_EXPORTER_OTLP_HEADERS="x-key=secret", **HTTP
        )

    assert status == 0
    assert about(found, "OTLP traces")[-1] == ("ok", "an empty export was taken there")
    assert [(method, path) for method, path, _ in heard] == [
        ("POST", "/v1/traces"),
        ("POST", "/v1/metrics"),
    ]
    assert heard[0][2]["x-key"] == "secret"
    assert "secret" not in json.dumps(found)


@pytest.mark.parametrize(
    ("answer", "fix"), [(401, "HEADERS"), (404, "Is the path right"), (500, "receiver's log")]
)
def test_a_receiver_that_refuses_is_told_why(run, answer, fix):
    """Its status, and what that usually means."""
    with answering(answer) as (url, _):
        status, found = run(OTEL_EXPORTER_OTLP_ENDPOINT=url, **HTTP)

    assert status == 1
    assert any(str(answer) in x["said"] and fix in x["fix"] for x in found)


def test_a_grpc_receiver_is_known_by_its_hello(run):
    """A gRPC server says its settings first."""
    with grpc_server() as url:
        status, found = run(OTEL_EXPORTER_OTLP_ENDPOINT=url)

    assert status == 0
    assert about(found, "OTLP traces")[-1] == ("ok", "a gRPC server answers there")


def test_grpc_to_an_http_receiver_is_found(run):
    """The commonest mistake: the right host, the wrong port."""
    with answering() as (url, _):
        status, found = run(OTEL_EXPORTER_OTLP_ENDPOINT=url)

    assert status == 1
    assert "no gRPC server" in about(found, "OTLP traces")[-1][1]


def test_http_to_a_grpc_receiver_is_found(run):
    """And the other way round."""
    with grpc_server() as url:
        status, found = run(OTEL_EXPORTER_OTLP_ENDPOINT=url, **HTTP)

    assert status == 1
    assert about(found, "OTLP traces")[-1][0] == "fault"


def test_an_endpoint_where_nobody_listens_is_found(run):
    """Set, no spans, no log."""
    status, found = run(OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{free_port()}")

    assert status == 1
    assert "nobody answers" in about(found, "OTLP traces")[-1][1]


def test_passwords_in_an_address_are_not_shown(run):
    """Nor anything before the @."""
    _, found = run(OTEL_EXPORTER_OTLP_ENDPOINT=f"http://me:hidden@127.0.0.1:{free_port()}")

    assert "hidden" not in json.dumps(found)


def page(**counters):
    """A metrics page of ours after some requests."""
    registry = CollectorRegistry()
    samples = instruments(registry)
    base = ("chat", "vllm", "m")
    samples.child(s.REQUESTS, (*base, "ok", "finish")).inc(counters.get("requests", 0))
    for phase in ("unattributed", "prefill"):
        if phase in counters:
            samples.child(s.TTFT_PHASE, (*base, phase, "1")).inc(counters[phase])
    return generate_latest(registry)


@pytest.mark.parametrize(
    ("body", "level", "says"),
    [
        (b"# nothing\n", "fault", "nothing of llm_trace"),
        (page(), "warning", "no request yet"),
        (page(requests=3, prefill=2), "ok", "traced 3 requests"),
        (b"\xff{{{", "fault", "nothing of llm_trace"),
    ],
)
def test_a_server_is_judged_by_its_page(run, body, level, says):
    """What it says of itself."""
    with answering(body=body) as (url, heard):
        _, found = run(url)

    assert heard[0][1] == "/metrics"
    assert about(found, "server")[0][0] == level
    assert says in about(found, "server")[0][1]


@pytest.mark.parametrize(("blind", "level"), [(9, "warning"), (1, "ok")])
def test_an_engine_that_nobody_joined_is_found(run, blind, level):
    """Most of the time to first token has no split."""
    with answering(body=page(requests=1, unattributed=blind, prefill=5)) as (url, _):
        _, found = run(url)

    assert about(found, "engine")[0][0] == level


def test_a_clock_that_differs_is_found(run):
    """By the Date header of the answer."""
    late = "Sat, 01 Jan 2000 00:00:00 GMT"
    with answering(body=page(), date=late) as (url, _):
        _, found = run(url)

    assert [level for level, _ in about(found, "clock")] == ["warning"]


@pytest.mark.parametrize("url", ["ftp://x", "nonsense", "http://", "http://[bad"])
def test_what_is_no_address_is_said(run, url):
    """With how one begins."""
    _, found = run(url)

    assert about(found, "server")[0][0] == "fault"


def test_the_report_is_readable_in_80_columns(capsys):
    """A level, what was found, and an arrow before what to do."""
    status = main(["doctor"])
    lines = capsys.readouterr().out.splitlines()

    assert status == 1
    assert max(map(len, lines)) <= 80
    assert any(line.strip().startswith("-> Set OTEL_EXPORTER_OTLP_ENDPOINT") for line in lines)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(url=st.text(max_size=20))
def test_no_address_makes_a_traceback(capsys, url):
    """Any text; with a dot before it, so that no machine is asked."""
    assert main(["doctor", f"./{url}"]) == 1
    assert capsys.readouterr().out
