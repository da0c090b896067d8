"""Several workers behind one port: one page with the numbers of all, each trace exported once."""

from __future__ import annotations

import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from grpc_receiver import GrpcReceiver
from programs import eventually
from stamped_client import ask
from uvicorn_server import CHAT, exports_to, serving
from worker_servers import SERVERS, WorkerServer

from llm_trace import semconv as s

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")

REQUESTS = s.REQUESTS.prometheus
ACTIVE = s.REQUESTS_ACTIVE.prometheus


@pytest.fixture
def server(programs, tmp_path):
    """A function that starts a server of a kind and waits for it."""

    def start(kind, **env):
        server = WorkerServer(kind, tmp_path, **env)
        programs.append(server)
        server.wait()
        return server

    return start


def ask_many(server, number):
    """Ask on connections of their own, so that every worker gets some; the traces' ids."""
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: server.ask(), range(number)))
    assert {answer.status for answer in answers} == {200}
    return {answer.trace_id for answer in answers}


def counted(server, number):
    """Wait until so many are counted: a client has its answer before the server is done with it."""
    eventually(lambda: server.total(REQUESTS) == number, f"{number} requests are not counted")


@pytest.mark.parametrize("kind", SERVERS)
def test_36_one_page_for_all_workers(server, tap, kind):
    """Whoever answers the scrape: counters never fall and count each request once, as traces do."""
    server = server(kind, **exports_to(tap.endpoint))
    asked, totals = set(), []

    for _ in range(4):
        asked |= ask_many(server, 5)
        totals += [server.total(REQUESTS) for _ in range(3)]

    assert totals == sorted(totals)
    counted(server, 20)
    assert server.total(f"{s.REQUEST_DURATION.prometheus}_count") == 20
    assert {key[0] for key in server.page()} >= {ACTIVE, s.SPANS_DROPPED.prometheus}
    eventually(lambda: server.total(ACTIVE) == 0, "requests that ended are in flight", within=5)
    assert server.terminate() == 0
    _each_once(tap, asked)


def _each_once(tap, asked):
    eventually(lambda: {x.trace_id for x in tap.spans() if x.is_root} >= asked, "spans are missing")
    spans = Counter(span.span_id for span in tap.spans())
    assert set(spans.values()) == {1}
    roots = Counter(span.trace_id for span in tap.spans() if span.is_root)
    assert {roots[trace_id] for trace_id in asked} == {1}


@pytest.mark.parametrize("kind", ["uvicorn, spawned", "gunicorn, forked"])
def test_36_what_dead_workers_had_in_flight_is_gone(server, kind):
    """Three requests hang, their workers are killed: none is in flight, and no counter fell."""
    server = server(kind)
    ask_many(server, 4)
    held = [server.hang() for _ in range(3)]
    eventually(lambda: server.total(ACTIVE) == 3, "three in flight are not shown", within=5)

    server.kill_workers()

    eventually(lambda: server.total(ACTIVE) == 0, "the dead are still at work", within=10)
    counted(server, 4)
    ask_many(server, 2)
    counted(server, 6)
    for one in held:
        one.close()


def test_a_reload_keeps_the_counters(server, tap, tmp_path):
    """A developer's server starts its worker anew at each change; nothing is lost or doubled."""
    (tmp_path / "changed.py").touch()
    server = server("uvicorn, reloaded", **exports_to(tap.endpoint))
    asked = ask_many(server, 3)
    before = server.workers()

    (tmp_path / "changed.py").write_text("changed = True\n")
    eventually(lambda: set(server.workers()).isdisjoint(before), "no reload", log=server)
    server.wait()
    asked |= ask_many(server, 2)

    counted(server, 5)
    server.stop()
    _each_once(tap, asked)


def test_an_app_loaded_before_the_fork_exports_over_grpc(server):
    """Channels are opened by each worker for itself: one that was opened before hangs."""
    with GrpcReceiver() as receiver:
        server = server("gunicorn, app loaded before", **exports_to(receiver.endpoint, "grpc"))
        asked = ask_many(server, 8)
        assert server.terminate() == 0
        _each_once(receiver, asked)


@pytest.mark.parametrize(
    ("factory", "told", "why"),
    [
        ("apps:too_late", False, "was set after prometheus_client was imported"),
        ("apps:create", True, "is no directory that this process may write to"),
    ],
)
def test_37_a_directory_that_cannot_serve_costs_no_request(programs, tmp_path, factory, told, why):
    """Serving goes on; the page and the log say what is wrong and what to do."""
    env = {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "missing")} if told else {}
    server = serving(programs, tmp_path, factory, **env)

    answers = [ask(server.port, CHAT, {"tokens": 2, "stream": True}) for _ in range(3)]
    page = ask(server.port, "/metrics")

    assert {answer.status for answer in answers} == {200}
    assert page.status == 503
    assert why.encode() in page.body
    assert why in server.text()
    assert "fault in" not in server.text()
