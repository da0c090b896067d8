"""Real vLLM as the decoding leg: its scheduler tells of the wait for another engine's KV cache.

One server, whose connector takes as long as a request asks: run with LLM_TRACE_VLLM_MODES=all, as
the modes of `test_engine_modes` that need a server for themselves.
"""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import suppress

import pytest
from stamped_client import Connection
from vllm_reading import trace_of
from vllm_server import COMPLETIONS, VllmServer, completion, make_model

from llm_trace import semconv as s

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(
        os.environ.get("LLM_TRACE_VLLM_MODES") != "all",
        reason="takes a server: set LLM_TRACE_VLLM_MODES=all",
    ),
]

CONNECTOR = {
    "kv_connector": "SlowStore",
    "kv_connector_module_path": "slow_store",
    "kv_role": "kv_both",
}
FLAGS = (
    *("--scheduler-cls", "llm_trace_vllm.scheduler"),
    *("--kv-transfer-config", json.dumps(CONNECTOR)),
)


@pytest.fixture(scope="module")
def engine(vllm_python, vllm_tap, tmp_path_factory):
    """The server."""
    folder = tmp_path_factory.mktemp("transfer")
    model = make_model(vllm_python, folder)
    server = VllmServer(vllm_python, model, vllm_tap, folder, flags=FLAGS)
    try:
        server.warm_up()
        yield server
    finally:
        server.stop()


def remote(takes):
    """A request whose prompt was computed elsewhere, and is so many seconds away."""
    words = " ".join(f"word{number}" for number in range(100))
    params = {"do_remote_prefill": True, "do_remote_decode": False, "takes": takes}
    return completion(f"{takes} {words}", 4, stream=True, kv_transfer_params=params)


def spans_of(server, answer):
    """The spans of a request by their names, each there once."""
    spans = trace_of(server, answer.trace_id)
    by_name = {span.name: span for span in spans}
    assert len(by_name) == len(spans)
    return by_name


def test_a_transfer_is_an_interval_of_its_own(engine):
    """Within the wait for the first schedule, as long as it took, on the engine's own clock."""
    answer = engine.ask(COMPLETIONS, remote(0.4))
    spans = spans_of(engine, answer)
    wait, transfer = spans["queue_wait"], spans[s.KV_TRANSFER]
    root = engine.tap.root(answer.trace_id)

    seconds = root.attributes[s.QUEUE_KV_TRANSFER]
    assert root.attributes[s.ENGINE_LEG] == "decode"
    assert wait.attributes[s.QUEUE_KV_TRANSFER] == seconds
    assert 0.4 <= seconds <= wait.attributes[s.QUEUE_IN_ENGINE]
    assert transfer.attributes == {s.PHASE_SOURCE: "engine"}
    assert transfer.parent_id == wait.span_id
    assert wait.start <= transfer.start < transfer.end <= wait.end


def test_a_request_without_a_transfer_has_none(engine):
    """Its prompt is computed here, with the same connector."""
    answer = engine.ask(COMPLETIONS, completion("all of it here", 4, stream=True))

    assert s.KV_TRANSFER not in spans_of(engine, answer)
    assert s.QUEUE_KV_TRANSFER not in engine.tap.root(answer.trace_id).attributes


def test_a_client_that_leaves_in_a_transfer(engine):
    """The news of its beginning comes while nothing is computed, too; it ends with the wait."""

    async def impatient():
        async with Connection(engine.port) as connection:
            answer = await connection.begin(COMPLETIONS, remote(3.0))
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(_until_token(connection, answer), 1.5)
            return answer

    answer = asyncio.run(impatient())
    root = engine.tap.root(answer.trace_id)
    (transfer,) = (x for x in engine.tap.trace(answer.trace_id) if x.name == s.KV_TRANSFER)

    assert answer.token_stamps() == []
    assert (root.attributes[s.OUTCOME], root.attributes[s.LAST_PHASE]) == (
        "cancelled",
        "queue_wait",
    )
    assert 1.0 < root.attributes[s.QUEUE_KV_TRANSFER] < 3.0
    assert transfer.end <= root.end


async def _until_token(connection, answer):
    while not answer.token_stamps():
        await connection.read_some(answer)
