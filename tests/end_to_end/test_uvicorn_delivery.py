"""What is neither app nor engine, on real uvicorn: the edge, a blocked loop, a slow client."""

from __future__ import annotations

import asyncio

import pytest
from scrape import scrape
from stamped_client import Connection, ask
from uvicorn_server import CHAT, exports_to, serving

from llm_trace import semconv as s
from llm_trace.core.clock import SYSTEM

LOOPS = ("asyncio", "uvloop")
BLOCKED_MS = 400
HELD = 0.5


@pytest.fixture(params=LOOPS)
def server(request, tap, programs, tmp_path):
    """A server with routes that block and flood, on each kind of loop."""
    if request.param == "uvloop":
        pytest.importorskip("uvloop", reason="uvloop is not for this Python")
    env = exports_to(tap.endpoint, UVICORN_LOOP=request.param)
    return serving(programs, tmp_path, "blocking", **env)


def test_a_blocked_loop_is_not_taken_for_a_slow_engine(server, tap):
    """A synchronous call in async code is on the root span, and its length in the histogram."""
    ask(server.port, CHAT, {"tokens": 1})  # the timer is set with the first request of a loop
    answers = [ask(server.port, "/v1/completions", {"ms": BLOCKED_MS}) for _ in range(2)]
    root = tap.root(answers[-1].trace_id)
    page = scrape(server.port)

    assert (BLOCKED_MS - 60) / 1e3 < root.attributes[s.LOOP_LAG] <= root.attributes[s.TTFT]
    assert "event_loop" == root.attributes[s.VERDICT]
    lag = s.EVENT_LOOP_LAG.prometheus
    late = page.total(f"{lag}_count") - page.total(f"{lag}_bucket", le="0.25")
    assert late >= 2
    assert 2 * (BLOCKED_MS - 60) / 1e3 < page.total(f"{lag}_sum")


def test_a_client_that_does_not_read_is_told_from_our_own_time(server, tap):
    """The time for which the client left its buffers full is back-pressure, and no more than it."""

    async def slow():
        async with Connection(server.port) as connection:
            answer = await connection.begin("/api/generate", {"tokens": 4_000})
            await connection.read_some(answer)
            await asyncio.sleep(HELD)  # and reads nothing
            while not answer.complete():
                await connection.read_some(answer)
            return answer

    held = tap.root(asyncio.run(slow()).trace_id)
    quick = tap.root(ask(server.port, CHAT, {"tokens": 3}).trace_id)
    page = scrape(server.port)

    assert 0 == held.attributes[s.SEND_WAIT]
    duration = (held.end - held.start) / 1e9
    assert HELD * 0.8 < held.attributes[s.SEND_WAIT_TOTAL] < duration
    assert s.SEND_WAIT_TOTAL not in quick.attributes
    assert 1 == page.total(f"{s.SEND_WAIT_TIME.prometheus}_count")
    assert 0 == page.total(f"{s.TTFT_SEND_WAIT_TIME.prometheus}_count")


def test_the_stamp_of_a_proxy_gives_the_edge(server, tap):
    """Span and metric say how long the request was on its way to us."""
    stamp = f"t={(SYSTEM.wall_ns() - 250_000_000) // 1_000_000}"
    answer = ask(server.port, CHAT, {"tokens": 1}, headers={"X-Request-Start": stamp})
    root = tap.root(answer.trace_id)
    page = scrape(server.port)

    assert 0.25 <= root.attributes[s.EDGE] < 5
    assert 1 == page.total(f"{s.EDGE_TIME.prometheus}_count")
