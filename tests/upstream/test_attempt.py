"""Our own faults in the way of a call: counted, and the app's call goes on."""

from __future__ import annotations

import httpx
import pytest
from staged_engine import BODY, STREAM, URL, Answer, Engine, async_client, serve

from llm_trace.core import faults
from llm_trace.upstream import attempt, calls, said, wire

pytestmark = pytest.mark.usefixtures("_watching")


def broken(*_args, **_kwargs):
    """Any fault of ours."""
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (calls, "operation_of"),
        (calls, "asked"),
        (attempt, "framing_of"),
        (attempt, "TokenDetector"),
        (attempt, "decide"),
        (wire, "headers_of"),
        (attempt.Attempt, "_saw"),
        (said, "take"),
    ],
)
def test_a_fault_of_ours_costs_telemetry_and_nothing_else(module, name, monkeypatch, clock):
    """Every byte reaches the app, whatever breaks."""
    monkeypatch.setattr(module, name, broken)
    faults.internal.clear()
    engine = Engine(clock, Answer(*STREAM))

    async def work():
        async with async_client(httpx, engine).stream("POST", URL, json=BODY) as response:
            async for data in response.aiter_bytes():
                yield data

    with faults.production():
        _, body = serve(work, clock)

    assert b"".join(step for step in STREAM if isinstance(step, bytes)) == body
    assert faults.internal["upstream"] >= 1
    assert engine.closed == 1
