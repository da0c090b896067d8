"""An app in front of a real vLLM, both with llm_trace: the app's ledger is split by vLLM's own.

The app says nothing of llm_trace but `instrument(app)`. The numbers that came in band are compared
with those that vLLM's own root span carries, which came another way.
"""

from __future__ import annotations

import pytest
from programs import LOOPBACK
from split_trees import asked, trees, ttft_phases
from tap import SERVER
from uvicorn_server import exports_to, serving
from vllm_server import SLOTS, chat

from llm_trace import semconv as s

pytestmark = pytest.mark.vllm

US = 1e-6
PATH = "/v1/chat/completions"
ASKED = ("httpx", "openai", "aiohttp")
COUNTED = {"stream_options": {"include_usage": True}}


@pytest.fixture(scope="module")
def relay(vllm, vllm_tap, tmp_path_factory):
    """The app, which exports to where vLLM does."""
    started = []
    engine = f"http://{LOOPBACK}:{vllm.port}"
    env = exports_to(vllm_tap.endpoint, RELAY_ENGINE=engine)
    server = serving(started, tmp_path_factory.mktemp("relay"), "relays:create", **env)
    yield server
    server.stop()


@pytest.mark.parametrize("name", ASKED)
def test_the_apps_ledger_is_split_by_the_engines_own(name, vllm, relay):
    """Eight streams on four slots: queue and prefill are vLLM's numbers to the microsecond."""
    requests = [
        (f"/{name}{PATH}", chat(f"{name} {n} " + "and so on " * 40 * n, 100, **COUNTED))
        for n in range(2 * SLOTS)
    ]
    asked(relay.port, requests[0])
    answers = asked(relay.port, *requests)

    queued = 0
    for app, (engine,), (call,) in trees(vllm.tap, answers):
        ours, theirs = ttft_phases(app), ttft_phases(engine)
        assert call.parent_id == app.span_id
        assert (engine.parent_id, engine.kind) == (call.span_id, SERVER)
        assert ours[s.QUEUE_WAIT] == pytest.approx(theirs[s.QUEUE_WAIT], abs=US)
        assert ours[s.PREFILL] == pytest.approx(theirs[s.PREFILL], abs=US)
        assert ours[s.NETWORK] > 0
        assert sum(round(x * 1e9) for x in ours.values()) == round(app.attributes[s.TTFT] * 1e9)
        assert call.attributes[s.USAGE_OUTPUT_TOKENS] == 100
        assert call.attributes[s.UPSTREAM_OUTCOME] == "ok"
        assert s.MOMENTS_DROPPED not in app.attributes
        queued += ours[s.QUEUE_WAIT] > 0.05
    assert queued >= SLOTS
    assert not any(b"llm_trace" in answer.body for answer in answers)


@pytest.fixture(scope="module")
def unasking(vllm, vllm_tap, tmp_path_factory):
    """The app, which does not ask for the ledger."""
    started = []
    engine = f"http://{LOOPBACK}:{vllm.port}"
    env = exports_to(vllm_tap.endpoint, RELAY_ENGINE=engine, LLM_TRACE_LEDGER_IN_BAND="off")
    server = serving(started, tmp_path_factory.mktemp("unasking"), "relays:create", **env)
    yield server
    server.stop()


@pytest.mark.parametrize("name", ASKED)
def test_vllms_per_request_metrics_split_the_wait(name, vllm, unasking):
    """Without the ledger in band vLLM's own metrics do: its queue, and a prefill without it."""
    requests = [
        (f"/{name}{PATH}", chat(f"metrics {name} {n} " + "and so on " * 40 * n, 50, **COUNTED))
        for n in range(2 * SLOTS)
    ]
    answers = asked(unasking.port, *requests)

    for app, (engine,), (call,) in trees(vllm.tap, answers):
        ours = ttft_phases(app)
        assert ours[s.QUEUE_WAIT] == pytest.approx(engine.attributes[s.LATENCY_QUEUE], abs=US)
        assert ours[s.PREFILL] == pytest.approx(engine.attributes[s.LATENCY_PREFILL], abs=US)
        assert ours[s.ENGINE] > 0
        assert s.NETWORK not in ours
        assert sum(round(x * 1e9) for x in ours.values()) == round(app.attributes[s.TTFT] * 1e9)
        assert call.attributes[s.UPSTREAM_OUTCOME] == "ok"


def test_an_answer_in_one_piece(vllm, relay):
    """The head told what the engine did, and its decode is vLLM's."""
    body = chat("all at once, please", 50, stream=False)
    (answer,) = asked(relay.port, (f"/whole{PATH}", body))

    ((app, (engine,), (call,)),) = trees(vllm.tap, [answer])
    told = {
        k.removeprefix(s.UPSTREAM_PREFIX): v
        for k, v in call.attributes.items()
        if k.startswith(s.UPSTREAM_PREFIX)
    }
    assert told[s.DECODE] == pytest.approx(engine.attributes[s.LATENCY_DECODE], abs=2 * US)
    assert told[s.PREFILL] == pytest.approx(engine.attributes[s.LATENCY_PREFILL], abs=2 * US)
    assert s.TTFT not in app.attributes


def test_a_question_that_is_rewritten_first(vllm, relay):
    """The first call is `generation`, the second one is split."""
    body = chat("rewrite this first", 20, **COUNTED)
    (answer,) = asked(relay.port, (f"/agent{PATH}", body))

    ((app, engines, calls),) = trees(vllm.tap, [answer], roots=3)
    ours = ttft_phases(app)
    assert [engine.parent_id for engine in engines] == [call.span_id for call in calls]
    assert [s.GENERATION, s.ENGINE] == [call.attributes[s.PHASE] for call in calls]
    first = (calls[0].end - calls[0].start) / 1e9
    assert ours[s.GENERATION] == pytest.approx(first, abs=US)
    assert ours[s.PREFILL] == pytest.approx(ttft_phases(engines[1])[s.PREFILL], abs=US)


def test_a_caller_that_does_not_ask_gets_vllms_own_bytes(vllm):
    """Straight to vLLM, without the header: no comment, no header of ours."""
    answer = vllm.ask(PATH, chat("nobody asked", 5))

    assert b"llm_trace" not in answer.raw
    assert "x-llm-trace-ledger" not in answer.headers


def test_a_caller_that_asks_by_hand(vllm):
    """Two comment lines, which leave the events as they are."""
    answer = vllm.ask(PATH, chat("somebody asked", 5), headers={"x-llm-trace-ledger": "1"})

    lines = [line for line in answer.body.split(b"\n") if line.startswith(b": llm_trace ")]
    assert [b'"at":"first_token"', b'"at":"end"'] == [line.split(b",")[1] for line in lines]
    assert answer.headers["x-llm-trace-ledger"] == "1"
    assert len(answer.token_stamps()) >= 1
