"""The metrics route of an app: its formats, its paths, and whose route it is."""

import asyncio
import logging

import pytest
from prometheus_client import CollectorRegistry, Counter, values
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from llm_trace.observers.exposition import NoPageError, add_route, page
from llm_trace.testing import Server, http_scope


@pytest.fixture
def registry():
    """A registry with one counter, which has an exemplar."""
    registry = CollectorRegistry()
    Counter("asked", "Requests.", registry=registry).inc(2, {"trace_id": "ab"})
    return registry


def test_openmetrics_for_who_accepts_it(registry):
    """With exemplars and the end mark."""
    body, content_type = page("application/openmetrics-text;version=1.0.0", registry)

    assert content_type.startswith("application/openmetrics-text")
    assert b'asked_total 2.0 # {trace_id="ab"}' in body
    assert body.endswith(b"# EOF\n")


@pytest.mark.parametrize("accept", ["", "*/*", "text/plain", "text/plain;version=0.0.4;q=0.5"])
def test_classic_text_for_all_others(registry, accept):
    """Without exemplars, which the classic text cannot hold."""
    body, content_type = page(accept, registry)

    assert content_type.startswith("text/plain")
    assert b"asked_total 2.0\n" in body
    assert b"trace_id" not in body


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A process whose numbers are in files from the start, in this directory."""
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    monkeypatch.setattr(values, "ValueClass", values.MultiProcessValue())
    return tmp_path


def test_workers_share_a_page(registry, shared):
    """In multiprocess mode the page is made from the files of all workers."""
    for pid in (1, 2):
        made = values.MultiProcessValue(lambda pid=pid: pid)
        made("counter", "asked", "asked_total", (), (), "Requests.").inc(2)

    body, _ = page("", registry)

    assert b"asked_total 4.0" in body


@pytest.mark.parametrize("how", ["removed", "unset", "empty"])
def test_a_directory_that_is_lost_is_said(registry, shared, monkeypatch, how):
    """The page says what to do; no request is any the worse."""
    if how == "removed":
        shared.rmdir()
    elif how == "unset":
        monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR")
    else:
        monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "")

    with pytest.raises(NoPageError, match="no directory that this process may write to: make"):
        page("", registry)


def test_a_directory_that_is_named_too_late_is_said(registry, tmp_path, monkeypatch):
    """Its numbers would be one worker's, which look like resets."""
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    app = Starlette()
    add_route(app, "/metrics")

    status, body = get(app, "/metrics")
    assert status == 503
    assert b"was set after prometheus_client was imported" in body


def get(app, path):
    """Status and body of a GET."""
    server = Server()
    asyncio.run(app(http_scope(path, method="GET", headers=()), server.receive, server.send))
    return server.sent[0]["status"], server.body


@pytest.mark.parametrize("path", ["/metrics", "/metrics/"])
def test_with_and_without_the_slash_before_any_catch_all(path):
    """A mount at the root would take both."""

    async def catch_all(_request):
        return PlainTextResponse("caught")

    app = Starlette(routes=[Mount("/", Starlette(routes=[Route("/{path:path}", catch_all)]))])
    add_route(app, "/metrics/")
    status, body = get(app, path)

    assert status == 200
    assert b"# TYPE" in body
    assert get(app, "/other") == (200, b"caught")


def test_the_root_can_be_the_metrics_path():
    """One route is enough there."""
    app = Starlette()
    add_route(app, "/")

    assert len(app.routes) == 1
    assert get(app, "/")[0] == 200


def test_an_apps_own_route_is_left_alone(caplog):
    """What the app serves there stays as it is, and we say so."""

    async def own(_request):
        return PlainTextResponse("own")

    app = Starlette(routes=[Route("/metrics", own)])
    with caplog.at_level(logging.INFO, "llm_trace"):
        add_route(app, "/metrics")

    assert get(app, "/metrics") == (200, b"own")
    assert len(app.routes) == len(caplog.records) == 1
