"""Field reports 55 to 61: what engines and their streams say. By the smallest input of each."""

from __future__ import annotations

import json

import pytest
from reported import MS, Traced
from starlette.applications import Starlette
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

import llm_trace
from llm_trace import semconv as s

CHAT = "/v1/chat/completions"
TTFT = s.TIME_TO_FIRST_TOKEN.prometheus
TPOT = s.TIME_PER_OUTPUT_TOKEN.prometheus


def event(choice=None, **fields):
    """One server-sent event."""
    choices = [] if choice is None else [{"index": 0, **choice}]
    return f"data: {json.dumps({'choices': choices, **fields})}\n\n".encode()


def token(text="a"):
    """An event with text."""
    return event({"delta": {"content": text}})


STOP = event({"delta": {}, "finish_reason": "stop"})


def served(*steps):
    """A chat route that streams `steps`; numbers are ms that pass, functions are called."""

    async def tokens():
        for step in steps:
            if isinstance(step, int):
                traced.clock.advance(step * MS)
            elif callable(step):
                step()
            else:
                yield step

    def answer(_request):
        return StreamingResponse(tokens(), media_type="text/event-stream")

    traced = Traced(Starlette(routes=[Route(CHAT, answer, methods=["POST"])]))
    return traced


@pytest.mark.parametrize("counted", [True, False])
def test_55_several_tokens_in_a_chunk_are_counted_by_usage_or_not_at_all(counted):
    """12 tokens in 4 chunks 100 ms apart are 27 ms each; chunk gaps are a metric of their own."""
    usage = [event(usage={"prompt_tokens": 5, "completion_tokens": 12})] if counted else []
    traced = served(token("a b c"), *[100, token("a b c")] * 3, STOP, *usage)

    traced.ask()

    expected = {("chat", "vllm", "other"): 0.3 / 11} if counted else {}
    assert expected == {k: pytest.approx(v) for k, v in traced.samples(f"{TPOT}_sum").items()}
    assert traced.total(f"{s.TIME_PER_OUTPUT_CHUNK.prometheus}_count") == 3


@pytest.mark.parametrize(("tokens", "said"), [(0, 0), (1, 1), (1, 0), (1, None)])
def test_56_no_token_or_one_has_no_time_per_token(tokens, said):
    """Absent, not 0; without a token there is no TTFT either."""
    usage = [event(usage={"completion_tokens": said})] if said is not None else []
    traced = served(10, *[token()] * tokens, 10, STOP, *usage)

    traced.ask()

    assert (tokens, 0) == (traced.total(f"{TTFT}_count"), traced.total(f"{TPOT}_count"))
    assert bool(tokens) is (s.TTFT in traced.root.attributes)


@pytest.mark.parametrize("status", [200, 400])
def test_57_an_answer_in_one_piece_has_no_ttft(status):
    """Also where a stream was asked for and refused with a document; no sample of 0."""

    def answer(_request):
        traced.clock.advance(50 * MS)
        return JSONResponse({"choices": [{"message": {"content": "a"}}]}, status)

    traced = Traced(Starlette(routes=[Route(CHAT, answer, methods=["POST"])]))
    traced.ask(body=b'{"stream": false}' if status == 200 else b'{"stream": true}')

    assert s.TTFT not in traced.root.attributes
    assert traced.samples(f"{TTFT}_count") == {}


MARKS = {
    "epoch and monotonic": {
        "queued": 1_700_000_000_000_000_000,
        "scheduled": 5000,
        "first_token": 5001,
    },
    "last before first": {"first_token": None, "last_token": 1},
    "zero": {"queued": 0, "scheduled": 0, "first_token": 0},
    "nonsense": {"queued": float("nan"), "scheduled": -5, "first_token": 2**80},
}


@pytest.mark.parametrize("kind", MARKS)
def test_58_stamps_of_another_clock_are_never_subtracted(kind):
    """One TTFT sample a request, by the client's clock; what contradicts it is not believed."""

    def call():
        with llm_trace.engine_call("chat", "m") as made:
            traced.clock.advance(300 * MS)
            for moment, at in MARKS[kind].items():
                made.mark(moment, at)

    traced = served(100, call, 100, token(), 10, token(), STOP)
    traced.ask()

    assert {0.5: 1} == {traced.total(f"{TTFT}_sum"): traced.total(f"{TTFT}_count")}
    attributes = traced.root.attributes
    parts = [v for k, v in attributes.items() if k.startswith(s.TTFT_PHASE_PREFIX)]
    assert sum(parts) == pytest.approx(0.5)
    assert min(parts) >= 0


def test_59_the_time_before_the_queue_belongs_to_somebody():
    """Arrival 0, queued 0.8, scheduled 0.9, token 1.4: parts and rest sum to the 1.4 exactly."""

    def call():
        with llm_trace.engine_call("chat", "m") as made:
            made.mark("queued")
            traced.clock.advance(100 * MS)
            made.mark("scheduled")
            traced.clock.advance(500 * MS)
            made.mark("first_token")

    traced = served(800, call, token(), STOP)
    traced.ask()

    attributes = traced.root.attributes
    parts = {
        key.removeprefix(s.TTFT_PHASE_PREFIX): value
        for key, value in attributes.items()
        if key.startswith(s.TTFT_PHASE_PREFIX) and value
    }
    assert (0.1, 0.5) == (parts["queue_wait"], parts["prefill"])
    assert attributes[s.TTFT] == pytest.approx(1.4)
    assert sum(parts.values()) == pytest.approx(1.4)


@pytest.mark.parametrize("leg", ["prefill", "decode"])
def test_60_the_prefill_leg_of_a_disaggregated_request_has_no_users_ttft(leg):
    """One user-level TTFT for the two; cached tokens of the decode leg are not its prefill."""

    def call():
        with llm_trace.engine_call("chat", "m") as made:
            made.leg = leg
            made.mark("queued")
            made.mark("scheduled")
            traced.clock.advance(100 * MS)
            made.mark("first_token")
            made.usage(input_tokens=9, cached_tokens=8 if leg == "decode" else 0, output_tokens=1)

    traced = served(call, token(), STOP)
    traced.ask()

    assert (leg == "decode") == traced.total(f"{TTFT}_count")
    (prefill,) = [span for span in traced.spans() if span.name == "prefill"]
    computed = prefill.attributes[s.PREFILL_COMPUTED_TOKENS]
    assert (9 if leg == "prefill" else 1) == computed
    assert leg == traced.root.attributes[s.ENGINE_LEG]


def test_61_embeddings_have_neither_ttft_nor_decode():
    """No sampling parameters, no tokens of the answer, no crash; adapters never make labels."""

    async def answer(request):
        body = await request.json()
        with llm_trace.engine_call("embeddings", body["model"]) as call:
            call.mark("queued")
            call.mark("scheduled")
            call.usage(input_tokens=4)
        return JSONResponse({"object": "list", "data": [], "usage": {"prompt_tokens": 4}})

    traced = Traced(Starlette(routes=[Route("/v1/embeddings", answer, methods=["POST"])]))
    for number in range(200):
        body = json.dumps({"model": f"adapter-{number}", "input": "a"}).encode()
        traced.ask("/v1/embeddings", body=body)

    assert traced.samples(f"{TTFT}_count") == {}
    assert all(s.TTFT not in span.attributes for span in traced.roots())
    assert not any(span.name == "decode" for span in traced.spans())
    models = {key[2] for key in traced.samples(s.REQUESTS.prometheus)}
    assert len(models) <= 33
