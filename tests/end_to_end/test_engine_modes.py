"""Real vLLM in its other modes: what each gives is what `docs/vllm.md` says.

One server with many flags at once: few blocks, so that requests are preempted; speculation; an API
key; a root path; keep-alive comments; a bounded queue; LoRA; a pause; no statistics of its own. The
modes that need a server or two for themselves are run with LLM_TRACE_VLLM_MODES=all.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from adapters import make_adapters
from programs import LOOPBACK, Program, clean_environment, eventually, free_port, listens
from scrape import scrape
from stamped_client import Connection, ask
from tap import OtelTap
from vllm_reading import counted, ns, requests, trace_of, ttft_phases, until_active
from vllm_server import (
    CHAT,
    COMPLETIONS,
    MODEL,
    SAMPLED,
    SHOWN,
    SLOTS,
    VllmServer,
    chat,
    completion,
    make_model,
)

from llm_trace import semconv as s

pytestmark = pytest.mark.vllm

EVERY_MODE = os.environ.get("LLM_TRACE_VLLM_MODES") == "all"
ALONE = pytest.mark.skipif(not EVERY_MODE, reason="takes a server: set LLM_TRACE_VLLM_MODES=all")

KEY = "a key of the test"
QUEUE = 12
SPECULATION = '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}'
SILENT = ("--disable-log-stats", "--no-enable-per-request-metrics")
FLAGS = (
    *("--max-model-len", "4096", "--num-gpu-blocks-override", "160", "--no-enable-prefix-caching"),
    *("--speculative-config", SPECULATION, "--api-key", KEY, "--root-path", "/proxy"),
    *("--sse-keep-alive-interval", "1", "--max-num-queued-reqs", QUEUE, *SILENT),
    *(
        "--enable-scale-out",
        "--enable-auto-tool-choice",
        "--tool-call-parser",
        "hermes",
        "--reasoning-parser",
        "qwen3",
    ),
)
ROUTES = {"VLLM_SERVER_DEV_MODE": "1"}
"""Those that put the engine to sleep are there."""
ADAPTERS = ("sql", "poetry")
"""One more than the engine holds at once, by its default."""
GENERATING = b'"finish_reason":null'
KEEP_ALIVE = b": keep-alive"
"""What a stream has once it generates, and once its client was told to be patient."""
INTER_TOKEN = f"{s.INTER_TOKEN_LATENCY.prometheus}_count"


@pytest.fixture(scope="module")
def server(vllm_python, vllm_tap, tmp_path_factory):
    """The server with all those flags; its callers send the key."""
    folder = tmp_path_factory.mktemp("modes")
    model = make_model(vllm_python, folder)
    make_adapters(vllm_python, model, *(folder / name for name in ADAPTERS))
    adapted = ("--enable-lora", "--lora-modules", *(f"{name}={folder / name}" for name in ADAPTERS))
    server = VllmServer(vllm_python, model, vllm_tap, folder, flags=(*FLAGS, *adapted), **ROUTES)
    server.headers = {"authorization": f"Bearer {KEY}"}
    try:
        server.warm_up()
        yield server
    finally:
        server.stop()


def at_once(server, asked):
    """The answers to these pairs of route and body, asked at once on open connections."""

    async def scenario():
        async with AsyncExitStack() as stack:
            opened = [await stack.enter_async_context(Connection(server.port)) for _ in asked]
            pairs = zip(opened, asked, strict=True)
            return await asyncio.gather(
                *(one.ask(*pair, headers=server.headers) for one, pair in pairs)
            )

    return asyncio.run(scenario())


def test_without_its_key_a_request_is_rejected(server):
    """Our middleware is outside vLLM's authentication: it sees the 401, and trusts nothing."""
    refused = {"authorization": "Bearer another"}
    answer, ticks = counted(
        server, lambda: ask(server.port, CHAT, chat("let me in", 4), headers=refused)
    )
    root = server.tap.root(answer.trace_id)

    assert (answer.status, ticks) == (401, {("rejected", "admission"): 1})
    assert root.name == "chat"
    assert "another" not in repr(root.attributes)


@pytest.mark.parametrize("path", [CHAT, f"/proxy{CHAT}"])
def test_a_root_path_changes_nothing(server, path):
    """Whether the proxy strips its prefix or not; and statistics that are off stay on for us."""
    answer, ticks = counted(server, lambda: server.ask(path, chat("through a proxy", 8)))
    root = server.tap.root(answer.trace_id)

    assert (answer.status, ticks) == (200, {("ok", "finish"): 1})
    assert root.attributes[s.ENGINE_TIER] == "engine-events"
    assert {"queue_wait", "prefill", "first_token"} <= ttft_phases(root).keys()


def test_keep_alive_comments_are_no_tokens(server):
    """A client that waits a second is told to be patient, and its first token is still to come."""

    async def scenario():
        async with AsyncExitStack() as stack:
            opened = [
                await stack.enter_async_context(Connection(server.port)) for _ in range(SLOTS + 1)
            ]
            for one in opened[:-1]:
                running = await one.begin(CHAT, chat("hold it", 1_200), headers=server.headers)
                while not running.complete() and b'"finish_reason":null' not in running.raw:
                    await one.read_some(running)
            answer = await opened[-1].begin(CHAT, chat("wait", 4), headers=server.headers)
            await opened[-1].read_until(answer, KEEP_ALIVE)
            for one in opened[:-1]:
                one.abort()
            return await opened[-1].finish(answer)

    answer, ticks = counted(server, lambda: asyncio.run(scenario()), SLOTS + 1)
    root = server.tap.root(answer.trace_id)

    assert ticks[("ok", "finish")] == 1
    assert root.attributes[s.TTFT] > 1
    assert ttft_phases(root)["queue_wait"] > 900_000_000
    assert sum(ttft_phases(root).values()) == ns(root.attributes[s.TTFT])


def test_a_full_queue_refuses(server):
    """vLLM has said 200 by then: the refusal is an event in the stream, and is counted as one."""
    until_active(server, {})
    own = "vllm:admission_rejections_total"
    before = server.scrape().total(own)
    asked = [(CHAT, chat(f"one of many, {n}", 40)) for n in range(2 * QUEUE)]
    answers, ticks = counted(server, lambda: at_once(server, asked), len(asked))
    refused = server.scrape().total(own) - before
    error = next(a for a in answers if b'"error"' in a.body)
    root = server.tap.root(error.trace_id)

    assert refused > 0
    assert sum(n for (outcome, _), n in ticks.items() if outcome == "rejected") == refused
    assert ticks[("ok", "finish")] == len(asked) - refused
    assert {outcome for outcome, _ in ticks} == {"ok", "rejected"}
    assert root.attributes[s.OUTCOME] == "rejected"
    assert s.TTFT not in root.attributes


def test_preempted_requests_say_how_long_they_were_out(server):
    """Four that grow beyond the blocks there are: some go back to the queue and come again."""
    until_active(server, {})
    before = server.scrape().total("vllm:num_preemptions_total")
    asked = [(COMPLETIONS, completion([300 + n] * 700, 800, temperature=1)) for n in range(SLOTS)]
    answers, ticks = counted(server, lambda: at_once(server, asked), SLOTS)
    roots = [server.tap.root(answer.trace_id) for answer in answers]
    out = [root.attributes for root in roots if s.PREEMPTIONS in root.attributes]

    assert ticks == {("ok", "finish"): SLOTS}
    preempted = server.scrape().total("vllm:num_preemptions_total") - before
    assert sum(one[s.PREEMPTIONS] for one in out) == preempted > 0
    worst = max(out, key=lambda one: one[s.QUEUE_REQUEUED])
    assert worst[s.DECODE_MAX_TOKEN_GAP] > worst[s.QUEUE_REQUEUED] > 0
    # Of one of them at least: on a busy machine others may lose more to what nobody sees.
    assert "preempted" in {one.get(s.DECODE_STALL_CAUSE) for one in out}


def test_speculated_tokens_share_the_time_of_their_step(server):
    """A step that brings three tokens brings three times between tokens, and the mean holds."""
    accepted = "vllm:spec_decode_num_accepted_tokens_total"
    before = server.scrape()
    body = completion([400, 401, 402] * 20, 300, temperature=0)
    answer, _ = counted(server, lambda: server.ask(COMPLETIONS, body))
    after = server.scrape()
    root = server.tap.root(answer.trace_id)

    assert after.total(accepted) > before.total(accepted)
    assert after.total(INTER_TOKEN) - before.total(INTER_TOKEN) == 299
    series = f"{s.INTER_TOKEN_LATENCY.prometheus}_sum"
    decoding = root.attributes[s.LATENCY_DECODE]
    assert after.total(series) - before.total(series) == pytest.approx(decoding, rel=1e-6)


TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "parameters": {
            "type": "object",
            "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}},
            "required": ["n"],
        },
    },
}
NAMED = {"type": "function", "function": {"name": "look_up"}}
CALLED = {"tools": [TOOL], "tool_choice": NAMED, "ignore_eos": False}


@pytest.mark.parametrize("stream", [False, True])
def test_asked_with_tools(server, stream):
    """A demanded tool changes how the model is held to a grammar, and nothing of the ledger."""
    body = chat("look it up", 60, stream=stream, **CALLED)
    answer, ticks = counted(server, lambda: server.ask(CHAT, body))
    root = server.tap.root(answer.trace_id)

    assert (answer.status, ticks) == (200, {("ok", "finish"): 1})
    assert (s.TTFT in root.attributes) is stream


def test_reasoning_comes_before_the_answer(server):
    """Reasoning is tokens: they make the time to first token, not the one to the first answer."""
    body = chat("think about it", 30)
    answer, ticks = counted(server, lambda: server.ask(CHAT, body))
    root = server.tap.root(answer.trace_id)

    assert (answer.status, ticks) == (200, {("ok", "finish"): 1})
    assert sum(ttft_phases(root).values()) == ns(root.attributes[s.TTFT])


def test_tokens_in_tokens_out(server):
    """vLLM's own route streams token ids that nobody has made text of: they are tokens."""
    sampling = {"max_tokens": 20, "ignore_eos": True}
    body = {"token_ids": [300, 301, 302], "sampling_params": sampling, "stream": True}
    answer, ticks = counted(server, lambda: server.ask("/inference/v1/generate", body))
    root = server.tap.root(answer.trace_id)

    assert (answer.status, ticks) == (200, {("ok", "finish"): 1})
    assert root.name == f"text_completion {MODEL}"
    assert sum(ttft_phases(root).values()) == ns(root.attributes[s.TTFT])
    assert "first_token" in ttft_phases(root)


def test_several_chats_in_one_request(server):
    """vLLM's batch is one request of several prompts."""
    chats = [chat(words, 4)["messages"] for words in ("you", "and you")]
    body = {**chat("", 4, stream=False), "messages": chats}
    answer, ticks = counted(server, lambda: server.ask("/v1/chat/completions/batch", body))
    root = server.tap.root(answer.trace_id)

    assert (answer.status, ticks) == (200, {("ok", "finish"): 1})
    assert (root.name, root.attributes[s.USAGE_OUTPUT_TOKENS]) == (f"chat {MODEL}", 8)


def test_an_adapter_is_a_model(server):
    """Requests of an adapter carry its name, on span and metric; those of the base model none."""
    asked = [(CHAT, {**chat("which of you", 8), "model": name}) for name in (*ADAPTERS, MODEL)]
    before = server.scrape()
    roots = [server.tap.root(answer.trace_id) for answer in at_once(server, asked)]
    label = "gen_ai_request_model"
    after = until_active(server, {})

    assert [root.attributes.get(s.ENGINE_LORA) for root in roots] == [*ADAPTERS, None]
    assert [root.name for root in roots] == [f"chat {name}" for name in (*ADAPTERS, MODEL)]
    for name in (*ADAPTERS, MODEL):
        counts = [page.by(label, s.REQUESTS.prometheus).get(name, 0) for page in (before, after)]
        assert counts[1] - counts[0] == 1


def test_without_room_for_its_adapter_a_request_waits(server):
    """The engine holds one adapter at a time: who wants another waits, and nothing else is full."""

    async def scenario():
        async with AsyncExitStack() as stack:
            first, second = [
                await stack.enter_async_context(Connection(server.port)) for _ in ADAPTERS
            ]
            body = {**chat("a long one", 400), "model": ADAPTERS[0]}
            running = await first.begin(CHAT, body, headers=server.headers)
            await first.read_until(running, GENERATING)
            body = {**chat("a short one", 4), "model": ADAPTERS[1]}
            waiting = await second.begin(CHAT, body, headers=server.headers)
            return await first.finish(running), await second.finish(waiting)

    (running, waiting), _ = counted(server, lambda: asyncio.run(scenario()), 2)
    first, second = (server.tap.root(one.trace_id).attributes for one in (running, waiting))

    assert second[s.TTFT_PHASE_PREFIX + s.QUEUE_WAIT] > 0.5 * first[s.LATENCY_DECODE]
    assert second[s.VERDICT] == "queue_deferred"


def test_a_paused_engine(server):
    """Its requests are given up, which is an error; who comes meanwhile queues, nothing loads."""

    async def scenario():
        async with AsyncExitStack() as stack:
            first, second, operator = [
                await stack.enter_async_context(Connection(server.port)) for _ in range(3)
            ]
            running = await first.begin(CHAT, chat("go on", 2_000), headers=server.headers)
            await first.read_until(running, GENERATING)
            await operator.ask("/sleep?level=0", {})
            waiting = await second.begin(CHAT, chat("wait", 4), headers=server.headers)
            await second.read_until(waiting, KEEP_ALIVE)
            await operator.ask("/wake_up", {})
            return await first.finish(running), await second.finish(waiting)

    (running, waiting), ticks = counted(server, lambda: asyncio.run(scenario()), 2)
    first, second = (server.tap.root(one.trace_id).attributes for one in (running, waiting))

    assert ticks == {("error", "decode"): 1, ("ok", "finish"): 1}
    assert (first[s.ERROR_TYPE], first[s.RESPONSE_FINISH_REASONS]) == ("abort", ["abort"])
    assert second[s.START_STATE] != "cold"
    assert second[s.TTFT_PHASE_PREFIX + s.QUEUE_WAIT] > 0.9


RESPONSES = "/v1/responses"
ANSWER = {"model": MODEL, "input": "go on", "max_output_tokens": 3_000, "ignore_eos": True}


@pytest.mark.parametrize("order", ["/pause?mode=abort", "/abort_requests"])
def test_an_answer_that_has_no_word_for_it_was_given_up(server, order):
    """By the engine, or by vLLM's front: it says `completed`, or nothing if it was in the queue."""
    asked = [
        (RESPONSES, {**ANSWER, **SAMPLED, "stream": True}),
        *[(CHAT, chat("go on", 3_000, **SHOWN))] * (SLOTS - 1),
        (RESPONSES, {**ANSWER, **SAMPLED}),
        (COMPLETIONS, completion("go on", 3_000, stream=True)),
    ]

    async def scenario():
        async with AsyncExitStack() as stack:
            *opened, operator = [
                await stack.enter_async_context(Connection(server.port))
                for _ in range(len(asked) + 1)
            ]
            answers = []
            for one, (path, body) in zip(opened, asked, strict=True):
                answers.append(await one.begin(path, body, headers=server.headers))
                if len(answers) <= SLOTS:
                    sign = b".delta" if path == RESPONSES else GENERATING
                    await one.read_until(answers[-1], sign)
            busy = {"decode": SLOTS, "queue_wait": len(asked) - SLOTS}
            await asyncio.to_thread(until_active, server, busy)
            await operator.ask(order, {})
            await operator.ask("/resume", {})
            return [await one.finish(answer) for one, answer in zip(opened, answers, strict=True)]

    answers, ticks = counted(server, lambda: asyncio.run(scenario()), len(asked))
    roots = [server.tap.root(answer.trace_id).attributes for answer in answers]

    assert {answer.status for answer in answers} == {200}
    assert {outcome for outcome, _ in ticks} == {"error"}
    assert [root[s.ERROR_TYPE] for root in roots] == ["abort"] * len(asked)


def test_nothing_of_ours_went_wrong(server):
    """After all of it nothing is in flight, no fault was contained, and nothing amiss was said."""
    page = until_active(server, {})

    assert page.total(s.ERRORS_INTERNAL.prometheus) == 0
    assert page.total(s.SPANS_DROPPED.prometheus) == 0
    assert page.total(s.ENGINE_FOREIGN_CLOCK.prometheus) == 0
    assert "sends no engine events" not in server.program.text()


# --- modes with servers of their own ------------------------------------------------------------

ASKED = 16
SERVERS = {
    "two API servers": (("--api-server-count", "2"), {}),
    "two engines": (("--data-parallel-size", "2"), {}),
    "one process": ((), {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}),
    "two API servers without statistics": (
        ("--api-server-count", "2", *SILENT),
        {},
    ),
}


@ALONE
@pytest.mark.parametrize("mode", SERVERS)
def test_mode(vllm_python, tmp_path, mode):
    """Every request has its record, and the one page shows them all, whoever served them."""
    flags, env = SERVERS[mode]
    tap = OtelTap(tmp_path)
    server = VllmServer(
        vllm_python, make_model(vllm_python, tmp_path), tap, tmp_path, flags=flags, **env
    )
    try:
        server.warm_up()
        # Of seconds: other processes read once a second what is in flight.
        asked = [(CHAT, chat(f"in every mode, {n}", 200)) for n in range(ASKED)]
        answers = at_once(server, asked)
        roots = [tap.root(answer.trace_id) for answer in answers]
        page = eventually(
            lambda: (page := server.scrape()) and _finished(page) == ASKED + 1 and page,
            "the page does not show every request",
            log=server.program,
        )
    finally:
        server.stop()
        tap.stop()

    assert [root.attributes[s.OUTCOME] for root in roots] == ["ok"] * ASKED
    for root in roots:
        assert sum(ttft_phases(root).values()) == ns(root.attributes[s.TTFT])
    tiers = {root.attributes[s.ENGINE_TIER] for root in roots}
    assert tiers == {"engine-events"}
    split = "without statistics" not in mode
    assert all(({"queue_wait", "prefill"} <= ttft_phases(root).keys()) is split for root in roots)
    ranks = {root.attributes.get(s.ENGINE_RANK) for root in roots}
    assert ranks == ({0, 1} if mode == "two engines" else {None})
    assert page.samples(s.REQUESTS_ACTIVE.prometheus)
    assert page.total(s.ERRORS_INTERNAL.prometheus) == 0


def _finished(page):
    return sum(requests(page).values())


@ALONE
def test_pooling(vllm_python, tmp_path):
    """Embeddings are queued and computed, in more steps than one, and have no token."""
    tap = OtelTap(tmp_path)
    flags = ("--runner", "pooling", "--convert", "embed")
    server = VllmServer(vllm_python, make_model(vllm_python, tmp_path), tap, tmp_path, flags=flags)
    body = {"model": "tiny", "input": [f"one text of many, {n}" for n in range(40)]}
    try:
        server.program.ready(server._healthy, "vLLM", within=240)
        answer, ticks = counted(server, lambda: server.ask("/v1/embeddings", body))
        spans = {x.name: x for x in trace_of(server, answer.trace_id)}
    finally:
        server.stop()
        tap.stop()

    assert (answer.status, ticks) == (200, {("ok", "finish"): 1})
    assert {"embeddings tiny", "queue_wait", "prefill"} <= spans.keys()
    assert "decode" not in spans
    root = spans["embeddings tiny"].attributes
    assert {s.TTFT, s.LATENCY_TTFT}.isdisjoint(root)
    assert not root.get(s.USAGE_OUTPUT_TOKENS)
    assert root[s.USAGE_INPUT_TOKENS] > 5


@ALONE
def test_an_embedded_engine(vllm_python, tmp_path):
    """An app that builds the engine itself: the same ledger, joined by hand, without a hop."""
    tap, port = OtelTap(tmp_path), free_port()
    env = clean_environment(
        PYTHONPATH=os.pathsep.join(
            [str(Path(__file__).parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        ),
        EMBEDDED_MODEL=str(make_model(vllm_python, tmp_path)),
        VLLM_HOST_IP=LOOPBACK,
        HF_HUB_OFFLINE="1",
        VLLM_NO_USAGE_STATS="1",
        OTEL_EXPORTER_OTLP_ENDPOINT=tap.endpoint,
        OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
        OTEL_BSP_SCHEDULE_DELAY="200",
        LLM_TRACE_ROUTES="/generate=text_completion",
    )
    command = [vllm_python, "-m", "uvicorn", "embedded:app", "--host", LOOPBACK, "--port", port]
    program = Program(command, tmp_path / "embedded.log", env=env)
    try:
        program.ready(lambda: listens(port), "the app", within=240)
        answers = [
            ask(port, "/generate", {"id": f"r-{n}", "prompt": [300 + n] * 40, "max_tokens": 20})
            for n in range(3)
        ]
        roots = [tap.root(answer.trace_id) for answer in answers]
        page = scrape(port)
    finally:
        program.stop()
        tap.stop()

    for root in roots:
        assert {"queue_wait", "prefill", "first_token"} <= ttft_phases(root).keys()
        assert sum(ttft_phases(root).values()) == ns(root.attributes[s.TTFT])
        assert root.attributes[s.ENGINE_TIER] == "engine-events"
        assert root.attributes[s.USAGE_OUTPUT_TOKENS] == 20
    assert page.by("llm_trace_engine_tier", s.ENGINE_INFO.prometheus) == {"engine-events": 1}
    assert page.total(INTER_TOKEN) == 3 * 19
    assert program.text().count("has no engine_client") == 0
