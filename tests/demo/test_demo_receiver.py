"""The OTLP receiver: takes what exporters send, refuses what it must, and counts it."""

import gzip
import http.client

import pytest
from demo_builders import TRACE, export

from llm_trace.demo import receiver as module
from llm_trace.demo.receiver import Receiver


@pytest.fixture
def receiver():
    """A receiver that serves."""
    with Receiver() as serving:
        yield serving


def post(receiver, body, path="/v1/traces", **headers):
    """Send one export and return the status."""
    host, port = receiver.endpoint.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=5)
    connection.request("POST", path, body, headers)
    status = connection.getresponse().status
    connection.close()
    return status


def test_spans_are_kept_by_trace(receiver):
    """What is exported can be asked for by its trace id."""
    assert post(receiver, export("chat", "rag-app", **{"llm_trace.ttft": 0.5})) == 200

    (span,) = receiver.spans(TRACE)
    assert (span.name, span.service) == ("chat", "rag-app")
    assert span.attributes == {"llm_trace.ttft": 0.5}
    assert receiver.spans("0" * 32) == []


def test_compressed_exports_are_read(receiver):
    """Exporters that compress are understood."""
    body = gzip.compress(export())

    assert post(receiver, body, **{"Content-Encoding": "gzip"}) == 200
    assert len(receiver.spans(TRACE)) == 1


def test_metrics_and_logs_are_accepted_and_left_aside(receiver):
    """A program that exports more than traces sees no error."""
    assert post(receiver, b"anything", "/v1/metrics") == 200
    assert post(receiver, b"anything", "/v1/logs") == 200
    assert receiver.dropped == 0


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [("/elsewhere", {}, 404), ("/v1/traces", {"Content-Encoding": "gzip"}, 400)],
)
def test_what_is_no_export_is_refused(receiver, path, headers, status):
    """A wrong path and a wrong encoding are told so."""
    assert post(receiver, b"no gzip", path, **headers) == status


def test_unreadable_exports_are_counted(receiver):
    """Bytes that are no export are dropped, counted, and harm no other."""
    post(receiver, b"\xff\xff")
    post(receiver, export())

    assert len(receiver.spans(TRACE)) == 1
    assert receiver.dropped == 1


def test_what_is_no_span_is_counted(receiver):
    """One that ends before it starts is dropped, and the others of its trace are kept."""
    post(receiver, export(end=0))
    post(receiver, export())

    assert len(receiver.spans(TRACE)) == 1
    assert receiver.dropped == 1


def test_oversized_exports_are_refused(receiver, monkeypatch):
    """A body over the limit is not read into memory."""
    monkeypatch.setattr(module, "_MAX_BODY", 10)

    assert post(receiver, export()) == 413


@pytest.mark.parametrize("limit", ["_MAX_BODIES", "_MAX_TRACES", "_MAX_SPANS"])
def test_every_store_is_bounded(receiver, monkeypatch, limit):
    """Beyond the bound spans are dropped and counted."""
    monkeypatch.setattr(module, limit, 1)
    post(receiver, export())
    post(receiver, export(trace=("f" * 32 if limit == "_MAX_TRACES" else TRACE)))

    assert len(receiver.spans(TRACE)) == 1
    assert receiver.dropped == 1


def test_waiting_ends_when_every_trace_is_complete(receiver):
    """Waiting returns at once for what is there, and says so when something never comes."""
    post(receiver, export())

    assert receiver.wait([TRACE], lambda spans: len(spans) == 1, 5)
    assert not receiver.wait([TRACE], lambda spans: len(spans) == 2, 0)
