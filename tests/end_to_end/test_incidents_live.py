"""A slowdown planted in a live deployment: the board shows it, and the alert blames its phase.

The objective is a quarter of a second, which suits a tiny model, and alerts hold for seconds, as an
operator would set in `dashboards/knobs.py`. Nothing else of the rules differs.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from programs import eventually
from rag import read_slowly, stream
from stamped_client import Connection
from vllm_server import CHAT, SLOTS, chat
from watch import Alertmanager, Watch, build_rules, filled

from llm_trace import semconv as s

HERE = Path(__file__).parent
sys.path += [str(HERE.parent / "dashboards"), str(HERE.parent / "stack")]

from board_files import QUERIES  # noqa: E402
from stack_tools import from_debian  # noqa: E402

pytestmark = [pytest.mark.services, pytest.mark.vllm]

PHASE = s.PHASE.replace(".", "_")
KNOBS = {"TTFT_SECONDS": 0.25, "HOLD": "3s"}
REQUESTS = 14
"""More than `knobs.ENOUGH`: fewer wake nobody."""


@pytest.fixture
def watch(rag, vllm, prometheus_programs, tmp_path):
    """A Prometheus that knows nothing but what happens from now on, and its Alertmanager."""
    program = from_debian("prometheus-alertmanager", "prometheus-alertmanager")
    if program is None:
        pytest.skip("there is no Alertmanager: install Debian's package prometheus-alertmanager")
    build_rules(tmp_path, **KNOBS)
    alertmanager = Alertmanager(program, tmp_path)
    watch = Watch(prometheus_programs, tmp_path, alertmanager, app=rag.port, vllm=vllm.port)
    yield watch
    watch.stop()
    alertmanager.stop()


async def _ask(port, bodies, at_once=REQUESTS):
    """Ask for all of `bodies`, so many of them at once."""
    room = asyncio.Semaphore(at_once)

    async def one(body):
        async with room, Connection(port) as connection:
            answer = await connection.ask(CHAT, body)
        assert answer.status == 200, answer.body

    await asyncio.gather(*map(one, bodies))


async def _slow_retrieval(rag, _vllm):
    finds = [stream(f"find {n}", 4, retrieval=1) for n in range(REQUESTS)]
    await _ask(rag.port, finds, at_once=SLOTS)


async def _blocked_loop(rag, _vllm):
    blocked = [stream(f"block {n}", 4, block=0.6) for n in range(REQUESTS)]
    await _ask(rag.port, blocked, at_once=2)


async def _slow_client(rag, _vllm):
    async def one(number):
        async with Connection(rag.port) as connection:
            await read_slowly(connection, f"read {number}")

    for first in range(0, REQUESTS, SLOTS):
        await asyncio.gather(*map(one, range(first, min(first + SLOTS, REQUESTS))))


async def _one_slot(_rag, vllm):
    """All slots but one are held by long answers."""
    async with AsyncExitStack() as stack:
        for number in range(SLOTS - 1):
            connection = await stack.enter_async_context(Connection(vllm.port))
            running = await connection.begin(CHAT, chat(f"hold slot {number}", 15_900))
            while not running.token_stamps():
                await connection.read_some(running)
        await _ask(vllm.port, [chat(f"wait for it {n}", 100) for n in range(REQUESTS)])


async def _long_prompts(_rag, vllm):
    """Prompts of many thousand tokens, no two alike from the first word on, one at a time."""
    prompts = [chat(f"{n} " + "a long story " * 2400, 4) for n in range(REQUESTS)]
    await _ask(vllm.port, prompts, at_once=1)


PLANTED = {
    "slow retrieval": (_slow_retrieval, s.RETRIEVAL, "LlmTraceRetrievalSlow"),
    "one slot": (_one_slot, s.QUEUE_WAIT, "LlmTraceEngineQueueSaturated"),
    "long prompts": (_long_prompts, s.PREFILL, None),
    "blocked loop": (_blocked_loop, s.FIRST_TOKEN, "LlmTraceEventLoopBlocked"),
    "slow client": (_slow_client, s.FIRST_TOKEN, "LlmTraceDeliverySlow"),
}
"""What is planted, the phase it must show in, and the alert of its own that it fires."""


def _told(watch, name, **labels):
    """What Alertmanager was told of the alert `name` with these labels."""
    alerts = watch.alertmanager.alerts()
    return [a for a in alerts if {"alertname": name, **labels}.items() <= a.items()]


@pytest.mark.parametrize(("plant", "phase", "own"), PLANTED.values(), ids=PLANTED)
def test_a_planted_slowdown_is_blamed_on_its_phase(rag, vllm, watch, plant, phase, own):
    """The stack's greatest part is the phase, and Alertmanager hears of it by name."""
    (stack,) = (q for q in QUERIES if q.panel["title"] == "Mean TTFT by phase")
    asyncio.run(plant(rag, vllm))

    burn = eventually(
        lambda: _told(watch, "LlmTraceTtftBurn"), "the budget does not burn", log=watch.program
    )
    shown = {labels[PHASE]: value for labels, value in watch.ask(filled(stack.target["expr"]))}
    assert phase == max(shown, key=shown.get)
    assert {phase} == {alert[PHASE] for alert in burn}
    if own is not None:
        eventually(lambda: _told(watch, own), f"{own} does not fire", log=watch.program)
