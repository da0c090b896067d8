"""Whatever a collector does: no request waits for it, memory is bounded, losses are counted."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from programs import eventually
from sabotaged_collector import DELAY, REJECTED, OverGrpc, OverHttp
from scrape import scrape
from stamped_client import Connection
from uvicorn_server import CHAT, exports_to, serving

from llm_trace import semconv as s
from llm_trace.core.clock import SYSTEM

REQUESTS = 150
ROOM = 64
LIMIT = 2.0
MARGIN = 4.0
"""Seconds for uvicorn itself to stop and for Python to end, on a busy machine."""
MIB = 2**20


def taken(port):
    """Ns of each of many requests on one connection, sorted."""

    async def requests():
        async with Connection(port) as connection:
            ns = []
            for _ in range(REQUESTS):
                begun = SYSTEM.monotonic_ns()
                answer = await connection.ask(CHAT, {"tokens": 3, "stream": True})
                assert answer.status == 200
                ns.append(SYSTEM.monotonic_ns() - begun)
            return sorted(ns)

    return asyncio.run(requests())


def p99(ns):
    """The 99th percentile in ms."""
    return ns[len(ns) * 99 // 100] / 1e6


def memory(server):
    """Resident bytes of a server."""
    if sys.platform != "linux":
        return 0
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return next(int(x.split()[1]) * 1024 for x in status.splitlines() if x.startswith("VmRSS"))


def dropped(server):
    """Spans that were lost so far, by reason."""
    lost = scrape(server.port).by("llm_trace_reason", s.SPANS_DROPPED.prometheus)
    return {reason: number for reason, number in lost.items() if number}


@pytest.mark.parametrize("over", [OverHttp, OverGrpc])
@pytest.mark.parametrize(
    ("mood", "reason"),
    [
        ("slow", "queue_full"),
        ("hanging", "queue_full"),
        ("refusing", "export_failed"),
        ("picky", "rejected"),
    ],
)
def test_no_request_waits_for_a_collector(over, mood, reason, programs, tmp_path):
    """Slow, hanging, refusing, taking a part: the tail is the bare app's, and losses are told."""
    without = serving(programs, tmp_path, "bare")
    with over(mood) as collector:
        env = exports_to(collector.endpoint, collector.protocol, OTEL_METRICS_EXPORTER="none")
        env |= {"OTEL_BSP_MAX_QUEUE_SIZE": str(ROOM), "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "16"}
        server = serving(programs, tmp_path, **env, LLM_TRACE_SHUTDOWN_TIMEOUT=str(LIMIT))
        expected = p99(taken(without.port))
        first, full = p99(taken(server.port)), memory(server)
        found, grown = p99(taken(server.port)), memory(server) - full
        lost = eventually(lambda: reason in dropped(server) and dropped(server), "nothing is told")
        begun = SYSTEM.monotonic_ns()
        server.terminate(within=LIMIT + MARGIN)
        ended = (SYSTEM.monotonic_ns() - begun) / 1e9

    sys.stdout.write(
        f"{mood}, {over.protocol}: p99 {first:.1f} and {found:.1f} ms, bare {expected:.1f} ms; "
        f"{grown / MIB:+.1f} MiB; {lost}; ended in {ended:.1f} s\n"
    )
    assert min(first, found) - expected < DELAY * 1e3 / 4
    assert grown < 8 * MIB
    assert ended < LIMIT + MARGIN
    assert "Traceback" not in server.text()
    if mood == "picky":
        assert lost["rejected"] % REJECTED == 0
        assert "rejected 2 spans: attributes too long" in server.text()
