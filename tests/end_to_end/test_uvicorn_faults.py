"""Real uvicorn processes: collectors that are down or silent, signals, and bad settings."""

from __future__ import annotations

import asyncio
import socket
import sys
from statistics import median

import pytest
from programs import LOOPBACK, eventually, free_port, listens
from scrape import scrape
from stamped_client import Connection, ask
from uvicorn_server import CHAT, exports_to, serving, uvicorn

from llm_trace import semconv as s
from llm_trace.core.clock import SYSTEM

REQUESTS = 200
MARGIN = 4.0
"""Seconds for uvicorn itself to stop and for Python to end, on a busy machine."""


@pytest.fixture
def silent():
    """A port that accepts connections, as far as the kernel goes, and never answers."""
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen(128)
        yield listener.getsockname()[1]


@pytest.fixture(params=["closed", "silent"])
def dead_port(request):
    """A collector that is not there, or that is there and says nothing."""
    return free_port() if request.param == "closed" else request.getfixturevalue("silent")


def _latencies(port):
    """Statuses and ns of two hundred requests on one connection."""

    async def requests():
        async with Connection(port) as connection:
            statuses, taken = set(), []
            for _ in range(REQUESTS):
                begun = SYSTEM.monotonic_ns()
                answer = await connection.ask(CHAT, {"tokens": 3, "stream": True})
                taken.append(SYSTEM.monotonic_ns() - begun)
                statuses.add(answer.status)
            return statuses, taken

    return asyncio.run(requests())


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_dead_collector_costs_no_request(dead_port, protocol, programs, tmp_path):
    """Two hundred answers, no slower than without llm_trace by 10 ms; one line; a prompt end."""
    env = exports_to(f"http://{LOOPBACK}:{dead_port}", protocol, OTEL_BSP_MAX_QUEUE_SIZE="64")
    env |= {"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "32", "LLM_TRACE_SHUTDOWN_TIMEOUT": "3"}
    without = serving(programs, tmp_path, "bare")
    server = serving(programs, tmp_path, **env)
    _, expected = _latencies(without.port)
    statuses, taken = _latencies(server.port)
    dropped = eventually(
        lambda: scrape(server.port).by("llm_trace_reason", s.SPANS_DROPPED.prometheus),
        "no span was counted as dropped",
        log=server,
    )
    begun = SYSTEM.monotonic_ns()
    server.terminate(within=3 + MARGIN)

    apart = (median(taken) - median(expected)) / 1e6
    sys.stdout.write(f"median of {REQUESTS} requests: {apart:+.3f} ms beside the bare app\n")
    assert statuses == {200}
    assert apart < 10
    assert dropped["queue_full"] > REQUESTS
    assert (SYSTEM.monotonic_ns() - begun) / 1e9 < 3 + MARGIN
    lines = [x for x in server.text().splitlines() if not x.startswith("INFO:")]
    assert len(lines) <= 2, server.text()
    assert "Traceback" not in server.text()


def test_every_lost_span_is_counted(tap, programs, tmp_path):
    """Made spans are exported or counted as dropped: the numbers meet."""
    server = serving(programs, tmp_path, **exports_to(f"http://{LOOPBACK}:{free_port()}"))
    answers = [ask(server.port, CHAT, {"tokens": 3, "stream": True}) for _ in range(5)]
    arriving = serving(programs, tmp_path, **exports_to(tap.endpoint))
    whole = ask(arriving.port, CHAT, {"tokens": 3, "stream": True})
    tap.root(whole.trace_id)
    each = len(tap.trace(whole.trace_id))

    eventually(
        lambda: scrape(server.port).total(s.SPANS_DROPPED.prometheus) == each * len(answers),
        "not every span was counted",
        within=60,
        log=server,
    )


@pytest.mark.parametrize("factory", ["create", "with_middleware", "wrapped"])
def test_sigterm_sends_what_is_queued(factory, tap, programs, tmp_path):
    """Spans and metrics of the last request arrive, though the next export was a minute away."""
    later = {"OTEL_BSP_SCHEDULE_DELAY": "60000", "OTEL_METRIC_EXPORT_INTERVAL": "60000"}
    server = serving(programs, tmp_path, factory, **exports_to(tap.endpoint, **later))
    answer = ask(server.port, CHAT, {"tokens": 3, "stream": True})
    server.terminate(within=5 + MARGIN)

    assert tap.root(answer.trace_id, within=5).attributes[s.OUTCOME] == "ok"
    eventually(lambda: s.REQUESTS.name in tap.metrics(), "no metrics came", within=5)


@pytest.mark.parametrize("factory", ["create", "with_middleware"])
@pytest.mark.parametrize(
    ("variable", "value", "advice"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317", "begin it with http:// or https://"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "use grpc or http/protobuf"),
        ("LLM_TRACE_ROUTE", "/ask=chat", "did you mean LLM_TRACE_ROUTES?"),
        ("LLM_TRACE_CACHED_SHARE", "7", "use a share above 0, up to 1"),
    ],
)
def test_bad_settings_stop_the_start(factory, variable, value, advice, programs, tmp_path):
    """One sentence that says what to do, a status, and no server that half works."""
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317", variable: value}
    server = uvicorn(tmp_path, factory, **env)
    programs.append(server)
    status = eventually(
        lambda: server.process.poll() if not listens(server.port) else "it serves",
        "uvicorn did not end",
        log=server,
    )

    assert status not in {0, "it serves"}, server.text()
    said = [line for line in server.text().splitlines() if advice in line]
    assert len(said) == 1
