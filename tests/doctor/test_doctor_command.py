"""`llm-trace doctor` against real sockets: receivers that are up, down, wrong or unwilling."""

from __future__ import annotations

import json
import os
import socket
import ssl
import sys
import threading
from concurrent import futures
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle

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
        if name.lower().endswith("_proxy"):
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
def answering(status=200, body=b"", tls=None, **headers):
    """An HTTP server that gives one answer, or the next; its address, and what it was sent.

    With `tls`, a file with key and certificate, it answers over TLS.
    """
    heard = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.rfile.read(int(self.headers.get("content-length", 0)))
            heard.append((self.command, self.path, dict(self.headers)))
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body if isinstance(body, bytes) else next(body))

        do_POST = do_GET  # noqa: N815 - the name that http.server wants

        def log_message(self, *_):
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *_: None  # a client that hangs up
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http{'s' * bool(tls)}://127.0.0.1:{server.server_address[1]}", heard
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
    assert "is no HTTP" in about(found, "OTLP traces")[-1][1]


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_https_to_a_receiver_without_tls_is_found(run, protocol):
    """Somebody answers: it is the handshake that fails."""
    with grpc_server() if protocol == "grpc" else answering() as receiver:
        url = receiver if protocol == "grpc" else receiver[0]
        _, found = run(
            OTEL_EXPORTER_OTLP_ENDPOINT=url.replace("http:", "https:"),
            OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
        )

    assert "the TLS handshake fails" in about(found, "OTLP traces")[-1][1]


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_http_to_a_receiver_with_tls_is_found(run, certificate, protocol):
    """A receiver of either kind hangs up on plain text."""
    with answering(tls=certificate) as (url, _):
        _, found = run(
            OTEL_EXPORTER_OTLP_ENDPOINT=url.replace("https:", "http:"),
            OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
        )

    assert "speaks TLS" in about(found, "OTLP traces")[-1][1]


def test_a_certificate_is_trusted_as_the_exporter_trusts_it(run, certificate):
    """By OTEL_EXPORTER_OTLP_CERTIFICATE, and not without it."""
    with answering(tls=certificate) as (url, _):
        _, without = run(OTEL_EXPORTER_OTLP_ENDPOINT=url, **HTTP)
        status, found = run(OTEL_EXPORTER_OTLP_CERTIFICATE=str(certificate))

    assert "is not trusted" in about(without, "OTLP traces")[-1][1]
    assert status == 0
    assert about(found, "OTLP traces")[-1] == ("ok", "an empty export was taken there")


@pytest.mark.parametrize(
    ("text", "says"),
    [(None, "there is no file"), ("no certificate", "certificates cannot be used")],
)
def test_a_certificate_that_cannot_be_used_is_found(run, tmp_path, text, says):
    """A file that is not there, and one that holds something else."""
    file = tmp_path / "ca.pem"
    if text is not None:
        file.write_text(text)
    _, found = run(
        OTEL_EXPORTER_OTLP_ENDPOINT="https://127.0.0.1:1", OTEL_EXPORTER_OTLP_CERTIFICATE=str(file)
    )

    assert says in about(found, "OTLP traces")[-1][1]


@pytest.mark.parametrize(
    ("name", "text", "level", "says"),
    [
        ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "-1", "fault", "the exporter cannot be made: OTEL_"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "0", "fault", "BATCH_SIZE='0' cannot be used"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zip", None, "zip"),
    ],
)
def test_a_variable_that_no_exporter_can_use_is_found(run, name, text, level, says):
    """Whether it fails at start or serves without exporter."""
    with answering() as (url, _):
        _, found = run(OTEL_EXPORTER_OTLP_ENDPOINT=url, **HTTP, **{name: text})

    [(was, said)] = [x for x in about(found, "OTLP traces") if x[0] != "ok"]
    assert was == (level or was)
    assert says in said


@pytest.mark.parametrize(
    ("environ", "warned"),
    [
        ({}, False),
        ({"http_proxy": "http://proxy:1"}, True),
        ({"http_proxy": "http://proxy:1", "no_proxy": "127.0.0.1"}, False),
    ],
)
@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_exports_that_go_by_a_proxy_are_found(run, protocol, environ, warned):
    """It may refuse what the endpoint itself would take."""
    protocols = {"OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
    with grpc_server() as url:
        _, found = run(OTEL_EXPORTER_OTLP_ENDPOINT=url, **protocols, **environ)

    said = [said for _, said in about(found, "OTLP traces")]
    assert any("http_proxy is set" in one for one in said) == warned


def test_an_exporter_that_is_not_installed_is_found(run, monkeypatch):
    """With the module that is missing."""
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with answering() as (url, _):
        status, found = run(OTEL_EXPORTER_OTLP_ENDPOINT=url, **HTTP)

    assert status == 1
    assert any("is not installed" in said for _, said in about(found, "OTLP traces"))


def test_a_header_that_cannot_be_sent_is_not_shown(run):
    """It may be a key with the line break of the file that it came from."""
    _, found = run(
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1", OTEL_EXPORTER_OTLP_HEADERS="k=hidden%0a"
    )

    assert "a line break" in about(found, "OTLP traces")[-1][1]
    assert "hidden" not in json.dumps(found)


def test_an_endpoint_where_nobody_listens_is_found(run):
    """Set, no spans, no log."""
    status, found = run(OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{free_port()}")

    assert status == 1
    assert "nobody answers" in about(found, "OTLP traces")[-1][1]


def test_a_query_of_an_address_is_sent_and_not_shown(run):
    """A backend may take its key there."""
    with answering() as (url, heard):
        _, found = run(OTEL_EXPORTER_OTLP_ENDPOINT=f"{url}?key=hidden", **HTTP)

    assert heard[0][1] == "/v1/traces?key=hidden"
    assert "hidden" not in json.dumps(found)


def test_an_address_of_six_is_shown_as_it_is_written(run):
    """In brackets."""
    _, found = run(OTEL_EXPORTER_OTLP_ENDPOINT="http://[::1]:1")

    assert "[::1]:1: " in about(found, "OTLP traces")[-1][1]


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
        (page(requests=3, prefill=2), "ok", "requests traced: 3"),
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


@pytest.mark.parametrize(
    ("starts", "expected"),
    [
        (("1e9", "1.1e9", "1.2e9"), [("warning", "at least 3 processes answer there in turn")]),
        (("1e9",), []),
        (("", "1e9"), []),
    ],
    ids=["three", "one", "one page of all"],
)
def test_workers_that_do_not_share_their_numbers_are_found(run, starts, expected):
    """By when the process began whose page it is; there is none on a page of all."""
    began = [f"process_start_time_seconds {start}\n" if start else "" for start in starts]
    with answering(body=cycle([page(requests=1) + line.encode() for line in began])) as (url, _):
        _, found = run(url)

    assert [(x, said.partition(",")[0]) for x, said in about(found, "workers")] == expected


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (404, b"", "answered 404"),
        (503, b"llm_trace: no metrics: it is no directory", "no metrics: it is no directory"),
    ],
)
def test_a_page_that_is_not_shown_is_told_why(run, status, body, says):
    """By the server's own sentence, where it has one."""
    with answering(status, body) as (url, _):
        _, found = run(url)

    [(level, said)] = about(found, "server")
    assert level == "fault"
    assert says in said


def test_a_server_is_asked_past_the_proxies_of_the_environment(run):
    """They are for what lies outside."""
    with answering(body=page(requests=1)) as (url, _):
        _, found = run(url, http_proxy="http://127.0.0.1:1")

    assert about(found, "server")[0] == ("ok", "requests traced: 1")


def test_a_password_in_the_servers_address_is_refused_and_not_shown(run):
    """It would not be sent."""
    _, found = run("http://me:hidden@127.0.0.1:1")

    assert "leave them out" in about(found, "server")[0][1]
    assert "hidden" not in json.dumps(found)


def test_a_clock_that_differs_is_found(run):
    """By the Date header of the answer."""
    late = "Sat, 01 Jan 2000 00:00:00 GMT"
    with answering(body=page(), date=late) as (url, _):
        _, found = run(url)

    assert [level for level, _ in about(found, "clock")] == ["warning"]


@pytest.mark.parametrize("url", ["ftp://x", "nonsense", "http://", "http://[bad", "http://h:x"])
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
