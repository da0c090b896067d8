"""Real vLLM: requests of every shape and every end, and what the engine tells of each.

It shares the one server of `test_vllm`, and leaves it as it was.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from programs import eventually
from stamped_client import Connection
from vllm_reading import counted, ns, trace_of, ttft_phases, until_active
from vllm_server import CHAT, COMPLETIONS, MODEL, SLOTS, chat, completion

from llm_trace import semconv as s

pytestmark = pytest.mark.vllm

RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"
LONG = 15_000
"""Tokens of a prompt that takes some thirty steps to compute."""
END_MARK = 2
"""A special token of the model, which no answer shows."""


def prompt(seed, tokens):
    """A prompt of exactly so many tokens that nobody asked before."""
    return random.Random(seed).choices(range(300, 2000), k=tokens)  # noqa: S311 - no secret


def grown(before, after, metric, suffix="", **labels):
    """By how much a series grew between two pages."""
    name = metric if isinstance(metric, str) else metric.prometheus
    return after.total(f"{name}{suffix}", **labels) - before.total(f"{name}{suffix}", **labels)


@asynccontextmanager
async def held_slots(server, number, tokens=15_900):
    """So many slots kept busy by streams that have their first token."""
    async with AsyncExitStack() as stack:
        for slot in range(number):
            connection = await stack.enter_async_context(Connection(server.port))
            running = await connection.begin(CHAT, chat(f"hold slot {slot}", tokens))
            while not running.token_stamps():
                await connection.read_some(running)
        yield


def leave_when(server, body, phases, *, path=COMPLETIONS, holding=0):
    """Ask, wait until requests are in just these phases, hang up; the trace and that page."""

    async def scenario():
        async with held_slots(server, holding), Connection(server.port) as connection:
            answer = await connection.begin(path, body)
            page = await asyncio.to_thread(until_active, server, phases)
            return answer.trace_id, page

    return asyncio.run(scenario())


# --- ends ---------------------------------------------------------------------------------------


def test_client_leaves_while_its_prompt_is_computed(vllm):
    """In the middle of thirty chunks: cancelled in `prefill`, inferred from the engine's counts."""
    body = completion(prompt("prefill", LONG), 4, stream=True)
    before = vllm.scrape()
    (trace_id, page), ticks = counted(vllm, lambda: leave_when(vllm, body, {"prefill": 1}))
    root = vllm.tap.root(trace_id)
    phases = {x.name: x.attributes[s.PHASE_SOURCE] for x in vllm.tap.trace(trace_id)}

    assert ticks == {("cancelled", "prefill"): 1}
    assert (root.attributes[s.OUTCOME], root.attributes[s.PHASE_SOURCE]) == (
        "cancelled",
        "inferred",
    )
    assert phases["prefill"] == phases.get("queue_wait", "inferred") == "inferred"
    assert page.total(s.ENGINE_OLDEST_WAITING.prometheus) == 0
    assert grown(before, vllm.scrape(), s.TTFT_OR_END, "_count") == 1
    for missing in (s.TTFT, s.LATENCY_QUEUE, s.QUEUE_BEFORE_ENGINE, s.PREFILL_WASTED_TOKENS):
        assert missing not in root.attributes


def test_client_of_a_plain_answer_leaves(vllm):
    """Its prompt was computed for nobody, and both the span and the counter say how much of it."""
    body = completion(prompt("wasted", 700), 15_000)
    before = vllm.scrape()
    (trace_id, _), ticks = counted(vllm, lambda: leave_when(vllm, body, {"decode": 1}))
    root = vllm.tap.root(trace_id)

    assert ticks == {("cancelled", "decode"): 1}
    assert root.attributes[s.PREFILL_WASTED_TOKENS] == 700
    assert grown(before, vllm.scrape(), s.USAGE_WASTED) == 700


def test_a_prompt_that_is_too_long(vllm):
    """Refused by the engine's own limits: rejected in admission, never handed off."""
    body = completion(prompt("too long", 20_000), 4, stream=True)
    answer, ticks = counted(vllm, lambda: vllm.ask(COMPLETIONS, body))

    assert (answer.status, ticks) == (400, {("rejected", "admission"): 1})


# --- shapes -------------------------------------------------------------------------------------

QUESTION = "say anything at all"
SCHEMA = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
ANSWER = {"model": MODEL, "input": QUESTION, "max_output_tokens": 12}
MESSAGE = {
    "model": MODEL,
    "max_tokens": 12,
    "messages": [{"role": "user", "content": QUESTION}],
}
SHAPES = {
    "responses": (RESPONSES, ANSWER, 12),
    "responses, streamed": (RESPONSES, {**ANSWER, "stream": True}, 12),
    "messages": (MESSAGES, MESSAGE, 12),
    "messages, streamed": (MESSAGES, {**MESSAGE, "stream": True}, 12),
    "usage at the end": (CHAT, chat(QUESTION, 12, stream_options={"include_usage": True}), 12),
    "usage all along": (
        CHAT,
        chat(
            QUESTION,
            12,
            stream_options={"include_usage": True, "continuous_usage_stats": True},
        ),
        12,
    ),
    "guided": (CHAT, chat(QUESTION, 30, response_format=FORMAT, ignore_eos=False), None),
    "stop string": (
        CHAT,
        chat(QUESTION, 400, stop=["e", "a"], min_tokens=8, ignore_eos=False),
        None,
    ),
    "log probabilities": (CHAT, chat(QUESTION, 12, logprobs=True, top_logprobs=2), 12),
    "echo": (COMPLETIONS, completion("tell", 12, echo=True, stream=True), 12),
}


@pytest.mark.parametrize(("path", "body", "tokens"), SHAPES.values(), ids=SHAPES)
def test_shape(vllm, path, body, tokens):
    """One record, ok, the engine's own phases, its tokens, and a ledger without a gap."""
    before = vllm.scrape()
    answer, ticks = counted(vllm, lambda: vllm.ask(path, body))
    root = vllm.tap.root(answer.trace_id)
    names = {span.name for span in trace_of(vllm, answer.trace_id)}
    said = root.attributes[s.USAGE_OUTPUT_TOKENS]

    assert (answer.status, ticks) == (200, {("ok", "finish"): 1})
    assert {"queue_wait", "prefill"} <= names
    assert "decode" in names or said < 3  # few tokens may come in one chunk
    assert root.attributes[s.PHASE_SOURCE] == "engine"
    assert tokens in {None, said}
    assert grown(before, vllm.scrape(), s.INTER_TOKEN_LATENCY, "_count") == said - 1
    if body.get("stream"):
        assert sum(ttft_phases(root).values()) == ns(root.attributes[s.TTFT])
    else:
        assert s.TTFT not in root.attributes


def test_a_stream_in_which_no_token_shows(vllm):
    """The model says its end mark and nothing else: no time to first token, the ledger whole."""
    body = completion("say nothing", 3, stream=True, allowed_token_ids=[END_MARK])
    before = vllm.scrape()
    answer, ticks = counted(vllm, lambda: vllm.ask(COMPLETIONS, body))
    root = vllm.tap.root(answer.trace_id)
    names = {span.name for span in trace_of(vllm, answer.trace_id)}

    assert ticks == {("ok", "finish"): 1}
    assert {"queue_wait", "prefill", "decode"} <= names
    assert s.TTFT not in root.attributes
    assert root.attributes[s.USAGE_OUTPUT_TOKENS] == 3
    assert grown(before, vllm.scrape(), s.TIME_TO_FIRST_TOKEN, "_count") == 0


def test_two_choices_read_one_prompt(vllm):
    """The engine has it twice, the second time perhaps from its cache; before it has it nobody."""
    body = completion(prompt("choices", 640), 6, n=2, stream=True)
    answer, ticks = counted(vllm, lambda: vllm.ask(COMPLETIONS, body))
    root = vllm.tap.root(answer.trace_id).attributes

    assert ticks == {("ok", "finish"): 1}
    assert (root[s.USAGE_INPUT_TOKENS], root[s.USAGE_OUTPUT_TOKENS]) == (640, 12)
    assert (root[s.USAGE_CACHED_TOKENS], root[s.START_STATE]) == (0, "warm")


def test_more_prompts_than_are_kept(vllm):
    """Each is a call of the engine: the last of four hundred end with the engine's time, too."""
    body = completion([prompt(f"one of many, {n}", 6) for n in range(400)], 1)
    answer, ticks = counted(vllm, lambda: vllm.ask(COMPLETIONS, body))
    root = vllm.tap.root(answer.trace_id)
    last = max(span.end for span in vllm.tap.trace(answer.trace_id) if span.name == "decode")

    assert ticks == {("ok", "finish"): 1}
    assert root.end - last < (last - root.start) / 4


@pytest.mark.parametrize(
    "request_id",
    ["x" * 8_000, "../../etc/passwd\t%00", "caf\N{LATIN SMALL LETTER E WITH ACUTE}", "0", "-"],
    ids=["huge", "hostile", "not ASCII", "zero", "dash"],
)
def test_an_id_that_its_client_chose(vllm, request_id):
    """It goes into the engine's ids; it is joined all the same, and bounded on the span."""
    ask = chat(QUESTION, 4)
    answer, ticks = counted(vllm, lambda: vllm.ask(CHAT, ask, headers={"x-request-id": request_id}))
    root = vllm.tap.root(answer.trace_id)

    assert (answer.status, ticks) == (200, {("ok", "finish"): 1})
    assert {"queue_wait", "prefill"} <= ttft_phases(root).keys()
    assert len(root.attributes[s.ENGINE_REQUEST_ID].encode()) <= 2_048


# --- facts --------------------------------------------------------------------------------------


def test_inter_token_times_are_the_engines(vllm):
    """Count and sum are those of vLLM's own histogram, and the span's decode time."""
    own = "vllm:inter_token_latency_seconds"
    before = vllm.scrape()
    answer, _ = counted(vllm, lambda: vllm.ask(CHAT, chat("two hundred of them", 200)))
    root = vllm.tap.root(answer.trace_id)
    after = eventually(
        lambda: (page := vllm.scrape()) and grown(before, page, own, "_count") >= 199 and page,
        "vLLM did not count its tokens",
        log=vllm.program,
    )

    assert grown(before, after, s.INTER_TOKEN_LATENCY, "_count") == 199
    ours = grown(before, after, s.INTER_TOKEN_LATENCY, "_sum")
    assert ours == pytest.approx(grown(before, after, own, "_sum"), rel=1e-6)
    assert ours == pytest.approx(root.attributes[s.LATENCY_DECODE], rel=1e-6)
    assert root.attributes[s.DECODE_MAX_TOKEN_GAP] <= ours
    assert 0 <= root.attributes[s.DECODE_STALL] < ours


def test_a_long_prompt_stalls_the_others(vllm):
    """While another prompt is computed in the same steps, tokens come late: the span says why."""

    async def scenario():
        async with Connection(vllm.port) as one, Connection(vllm.port) as other:
            stream = await one.begin(CHAT, chat("a stream that is disturbed", 300))
            while len(stream.token_stamps()) < 40:
                await one.read_some(stream)
            await other.ask(COMPLETIONS, completion(prompt("disturb", LONG), 2))
            while not stream.complete():
                await one.read_some(stream)
            return stream.trace_id

    trace_id, _ = counted(vllm, lambda: asyncio.run(scenario()), 2)
    root = vllm.tap.root(trace_id)

    assert root.attributes[s.DECODE_STALL_CAUSE] == "prefill"
    assert root.attributes[s.DECODE_STALL] > root.attributes[s.DECODE_MAX_TOKEN_GAP] > 0


def test_a_queued_request_knows_the_batch_that_it_joined(vllm):
    """Four run and it waits; when one of them is done it is first scheduled, beside three."""

    async def scenario():
        async with held_slots(vllm, SLOTS, tokens=400), Connection(vllm.port) as connection:
            return await connection.ask(CHAT, chat("wait for a slot", 4))

    answer = asyncio.run(scenario())
    root = vllm.tap.root(answer.trace_id)
    until_active(vllm, {})
    spans = {x.name: x for x in trace_of(vllm, answer.trace_id)}
    queued, prefill = spans["queue_wait"].attributes, spans["prefill"].attributes

    assert queued[s.BATCH_RUNNING] == SLOTS - 1
    assert queued[s.BATCH_WAITING] == 1
    assert 0 < queued[s.BATCH_KV_USAGE] < 1
    parts = ns(queued[s.QUEUE_BEFORE_ENGINE]) + ns(queued[s.QUEUE_IN_ENGINE])
    assert parts == ttft_phases(root)["queue_wait"]
    assert prefill[s.PREFILL_EXTERNAL_TOKENS] == 0


def test_start_states(vllm):
    """The same prompt again is cached, half of it partial; the span counts what was computed."""
    whole = prompt("states", 640)
    half = whole[:320] + prompt("other half", 320)
    states = []
    for asked in (whole, whole, half):
        answer = vllm.ask(COMPLETIONS, completion(asked, 2, stream=True))
        spans = {x.name: x.attributes for x in trace_of(vllm, answer.trace_id)}
        prefill = spans["prefill"]
        states.append(
            (
                prefill[s.START_STATE],
                prefill[s.PREFILL_CACHED_TOKENS],
                prefill[s.PREFILL_COMPUTED_TOKENS],
            )
        )

    assert states == [("warm", 0, 640), ("cached", 608, 32), ("partial", 320, 320)]


def test_the_prefilling_leg_has_no_user(vllm):
    """Its one token goes to the engine that decodes: it feeds no time to first token."""
    transfer = {"do_remote_decode": True, "do_remote_prefill": False}
    body = completion(prompt("leg", 100), 1, stream=True, kv_transfer_params=transfer)
    before = vllm.scrape()
    answer, ticks = counted(vllm, lambda: vllm.ask(COMPLETIONS, body))
    root = vllm.tap.root(answer.trace_id)
    after = vllm.scrape()

    assert ticks == {("ok", "finish"): 1}
    assert root.attributes[s.ENGINE_LEG] == "prefill"
    for metric in (s.TIME_TO_FIRST_TOKEN, s.TTFT_OR_END):
        assert grown(before, after, metric, "_count") == 0
    assert grown(before, after, s.PHASE_DURATION, "_count", llm_trace_phase="prefill") == 1


def test_what_is_said_of_the_engine(vllm):
    """One engine, joined by its events, on our clock, with nobody waiting."""
    page = until_active(vllm, {})

    assert page.by("llm_trace_engine_tier", s.ENGINE_INFO.prometheus) == {"engine-events": 1}
    assert page.total(s.ENGINE_FOREIGN_CLOCK.prometheus) == 0
    assert page.total(s.ENGINE_OLDEST_WAITING.prometheus) == 0
    assert page.total(s.ERRORS_INTERNAL.prometheus) == 0
