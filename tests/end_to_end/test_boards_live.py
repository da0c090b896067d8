"""Every query of the boards over a live deployment: a RAG app, real vLLM, real Prometheus."""

from __future__ import annotations

import asyncio
import math
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from rag import read_slowly, stream
from stamped_client import Connection, ask, leave
from vllm_server import CHAT, COMPLETIONS, SLOTS, chat, completion
from watch import Watch, build_rules, filled

from llm_trace import semconv as s
from llm_trace.core.clock import SYSTEM

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "dashboards"))

from board_files import QUERIES, rules  # noqa: E402

pytestmark = [pytest.mark.services, pytest.mark.vllm]

NOT_HERE = {
    "DCGM_": {
        *("GPUs seen", "SM clock", "Throttled", "Temperature", "Power", "Something ran"),
        *("Bound by compute or by memory?", "Engine active", "Memory used", "Memory free"),
        *("Memory used, by pod", "NVLink", "PCIe, to the GPU", "PCIe, from the GPU"),
        *("PCIe retries", "Last XID error"),
    },
    "vllm:spec_decode_": {"Speculative tokens accepted"},
    "_floor_ratio": {
        *("Prefill over its floor", "Decode step over its floor", "Times above the floor"),
    },
}
"""Panels that read NVIDIA's exporter, an engine that speculates, or the floors of a device of the
roofline's table: tests/dashboards asks them on documented samples."""
EXPECTED = s.EXPECTED_TIME_TO_FIRST_TOKEN.prometheus
"""What a benchmark lets expect: nobody loaded one here."""


@pytest.fixture(scope="module")
def real_run(rag, vllm, prometheus_programs, tmp_path_factory):
    """A Prometheus that watched every kind of request for the time of two shown ranges."""
    folder = tmp_path_factory.mktemp("watch")
    build_rules(folder)
    watch = Watch(prometheus_programs, folder, app=rag.port, vllm=vllm.port)
    began = "time() - 44 < min(min_over_time(timestamp(up)[1m:1s]))"
    try:
        _traffic(rag, vllm)
        while watch.ask(began):
            _traffic(rag, vllm)
        yield watch
    finally:
        watch.stop()


def _traffic(rag, vllm):
    """Streamed, plain, cached, queued, cancelled, failed and rejected requests."""
    asyncio.run(_burst(rag.port, [stream(f"question {n} " * 30, 24) for n in range(3 * SLOTS)]))
    asyncio.run(_read_slowly(rag.port))
    by_a_proxy = {"x-request-start": f"t={SYSTEM.wall_ns() / 1e9:.3f}"}
    ask(rag.port, CHAT, stream("a slow one", 8, retrieval=1.2), headers=by_a_proxy)
    ask(rag.port, CHAT, stream("the same words again and again " * 20, 8))
    with suppress(EOFError):
        ask(rag.port, CHAT, stream("a failure", 8, dies=True))
    ask(vllm.port, CHAT, chat("all at once", 8, stream=False))
    ask(vllm.port, COMPLETIONS, completion("once upon a time there was", 8))
    ask(vllm.port, CHAT, chat("nobody serves this", 4, model="nobody"))
    leave(vllm.port, CHAT, chat("a very long answer", 4000), after_tokens=3)


async def _read_slowly(port):
    async with Connection(port) as connection:
        await read_slowly(connection, "a slow reader")


async def _burst(port, bodies):
    async def one(body):
        async with Connection(port) as connection:
            await connection.ask(CHAT, body)

    await asyncio.gather(*map(one, bodies))


def _can_be_asked(query):
    exceptions = set().union(*NOT_HERE.values())
    return query.panel["title"] not in exceptions and EXPECTED not in query.target["expr"]


def test_every_expression_has_data_of_a_real_run(real_run):
    """Each query of each panel and recording rule gives finite samples on what was scraped live."""
    exprs = {str(q): filled(q.target["expr"]) for q in QUERIES if _can_be_asked(q)}
    exprs |= {rule["record"]: rule["expr"] for rule in rules("rules.yaml")}
    found = {name: real_run.ask(expr) for name, expr in exprs.items()}

    assert [] == [name for name, samples in found.items() if not samples]
    assert [] == [
        name
        for name, samples in found.items()
        if not all(math.isfinite(value) for _, value in samples)
    ]


def test_what_is_not_asked_here_is_listed():
    """The exceptions are exactly the panels that read what nobody here has."""
    reading = {
        series: {q.panel["title"] for q in QUERIES if series in q.target["expr"]}
        for series in NOT_HERE
    }

    assert NOT_HERE == reading


def test_every_alert_can_be_asked_of_a_real_run(real_run):
    """No alert's expression is refused, and none gives anything but numbers."""
    for rule in rules("alerts.yaml"):
        assert all(math.isfinite(value) for _, value in real_run.ask(rule["expr"]))


def test_the_stack_sums_to_the_mean_ttft_of_a_real_run(real_run):
    """The parts of the stack panel are the mean of the TTFT histogram, within a hundredth."""
    (stack,) = (q for q in QUERIES if q.panel["title"] == "Mean TTFT by phase")
    name = s.TIME_TO_FIRST_TOKEN.prometheus
    mean = f"sum(rate({name}_sum[20s])) / sum(rate({name}_count[20s]))"
    parts = real_run.ask(filled(stack.target["expr"]))
    ((_, whole),) = real_run.ask(mean)

    assert sum(value for _, value in parts) == pytest.approx(whole, rel=0.01)
