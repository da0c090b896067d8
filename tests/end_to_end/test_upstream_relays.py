"""An app and an engine in processes of their own: the trace through both, and whose time it is."""

from __future__ import annotations

import pytest
from programs import LOOPBACK
from split_trees import CLIENT, asked, trees, ttft_phases
from staged_vllm import PREFILL, QUEUE
from stamped_client import leave
from tap import SERVER, OtelTap
from uvicorn_server import exports_to, serving

from llm_trace import semconv as s

US = 1e-6
PATH = "/v1/chat/completions"
ASKED = {"model": "staged", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
COUNTED = {**ASKED, "stream_options": {"include_usage": True}}
NAMES = ("httpx", "openai", "aiohttp", "threads", "openai-threads")


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One receiver, one engine, one app."""
    started, folder = [], tmp_path_factory.mktemp("relays")
    tap = OtelTap(folder)
    env = exports_to(tap.endpoint)
    engine = serving(started, folder, "staged_vllm:create", **env)
    url = f"http://{LOOPBACK}:{engine.port}"
    app = serving(started, folder, "relays:create", RELAY_ENGINE=url, **env)
    yield tap, app.port
    for program in (*started, tap):
        program.stop()


@pytest.mark.parametrize("name", NAMES)
def test_one_trace_through_both(name, shared):
    """Root, call, engine's root: each below the other, and the wait split by the engine."""
    tap, port = shared
    answers = asked(port, *[(f"/{name}{PATH}", COUNTED)] * 3)

    for app, (engine,), (call,) in trees(tap, answers):
        ours, theirs = ttft_phases(app), ttft_phases(engine)
        assert (call.parent_id, engine.parent_id) == (app.span_id, call.span_id)
        assert (engine.kind, call.name) == (SERVER, "chat staged")
        assert ours[s.QUEUE_WAIT] == pytest.approx(theirs[s.QUEUE_WAIT], abs=US)
        assert ours[s.PREFILL] == pytest.approx(theirs[s.PREFILL], abs=US)
        assert sum(round(x * 1e9) for x in ours.values()) == round(app.attributes[s.TTFT] * 1e9)
        assert call.attributes[s.USAGE_OUTPUT_TOKENS] == 3
    assert not any(b"llm_trace" in answer.body for answer in answers)


def test_a_caller_of_the_app_that_asks(shared):
    """It is told the app's own ledger, which the engine's is a part of."""
    _, port = shared
    (answer,) = asked(port, (f"/httpx{PATH}", ASKED), headers={"x-llm-trace-ledger": "1"})

    first, last = (line for line in answer.body.split(b"\n") if line.startswith(b": llm_trace "))
    assert b'"network":' in first
    assert b'"queue_wait":' in first
    assert b'"decode":' in last


def test_an_agent(shared):
    """Two calls, of which the first one is `generation`."""
    tap, port = shared
    answers = asked(port, (f"/agent{PATH}", ASKED))

    ((app, engines, calls),) = trees(tap, answers, roots=3)
    ours = ttft_phases(app)
    assert [engine.parent_id for engine in engines] == [call.span_id for call in calls]
    assert [s.GENERATION, s.ENGINE] == [call.attributes[s.PHASE] for call in calls]
    assert ours[s.GENERATION] >= QUEUE + PREFILL - 0.002
    assert ours[s.PREFILL] == pytest.approx(ttft_phases(engines[1])[s.PREFILL], abs=US)


@pytest.mark.parametrize("name", ["httpx", "openai", "aiohttp"])
def test_a_client_that_leaves(name, shared):
    """The call of a stream that nobody reads any more is cancelled with its request."""
    tap, port = shared
    body = {**ASKED, "metadata": {"pause": "0.5"}}
    answer = leave(port, f"/{name}{PATH}", body, after_tokens=1)

    spans = tap.trace_with(answer.trace_id, 2)
    (call,) = [span for span in spans if span.kind == CLIENT]
    (root,) = [span for span in spans if span.span_id == call.parent_id]
    assert root.attributes[s.OUTCOME] == "cancelled"
    assert call.attributes.get(s.UPSTREAM_OUTCOME, "cancelled") == "cancelled"
    assert not call.failed
