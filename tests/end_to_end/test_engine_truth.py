"""Real vLLM with the scheduler factory: our records against EngineCore's own schedule.

One server for all. What really happened is noted by a scheduler of the test's own inside EngineCore
(`truth_log`), what we made of it by `record_log` in the API server. Few blocks and eight slots, so
that requests queue and are preempted. The last test kills EngineCore, and the server with it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from mixed_load import ask_mixed
from programs import eventually
from stamped_client import Connection
from truth_reading import Recorded, read_truth
from vllm_server import CHAT, COMPLETIONS, VllmServer, chat, completion, make_model

from llm_trace import semconv as s

pytestmark = pytest.mark.vllm

SLOTS = 8
MIXED = 50
WAVES = 4
MANY = WAVES * MIXED
STREAMS = 20
DRAFTS = {
    "method": "ngram",
    "num_speculative_tokens": 3,
    "prompt_lookup_max": 3,
    "prompt_lookup_min": 1,
}
"""Tokens guessed from those before: a step may bring several of them."""
FLAGS = (
    *("--scheduler-cls", "truth_log.scheduler"),
    *("--max-model-len", "4096", "--max-num-seqs", SLOTS, "--num-gpu-blocks-override", "130"),
    *("--speculative-config", json.dumps(DRAFTS)),
)
TRIES = 5
"""To leave while a prompt is computed: the page that says so is a moment old."""


@pytest.fixture(scope="module")
def engine(vllm_python, vllm_tap, tmp_path_factory):
    """The server; its logs are `truth` and `records`."""
    folder = tmp_path_factory.mktemp("truth")
    truth, records = folder / "truth.jsonl", folder / "records.jsonl"
    server = VllmServer(
        vllm_python,
        make_model(vllm_python, folder),
        vllm_tap,
        folder,
        flags=FLAGS,
        inner="record_log.RecordLog",
        TRUTH_LOG=str(truth),
        RECORD_LOG=str(records),
    )
    server.truth, server.records = truth, records
    try:
        server.warm_up()
        yield server
    finally:
        server.stop()


def _quiet(server):
    return not server.scrape().total(s.REQUESTS_ACTIVE.prometheus)


def _run(server, waves=1):
    """A mixed load: what was asked, and what both sides noted of just these requests."""
    eventually(lambda: _quiet(server), "what was asked before is still active", log=server.program)
    before = len(Recorded(server.records).records)
    asked = [one for _ in range(waves) for one in ask_mixed(server.port, MIXED)]
    eventually(lambda: _quiet(server), "requests are still active", log=server.program)
    recorded = Recorded(server.records)
    new = recorded.records[before:]
    calls = {call["id"]: call for record in new for call in record["calls"]}
    told, ends = read_truth(server.truth)
    return SimpleNamespace(
        asked=asked,
        records=new,
        calls=calls,
        outcomes={call["id"]: record["outcome"] for record in new for call in record["calls"]},
        told={key: told[key] for key in calls},
        ends=ends,
        ticks={key: recorded.ticks[key] for key in calls},
        late={key: recorded.late[key] for key in calls},
        heard={key: recorded.forgotten.get(key, recorded.tokens(key)) for key in calls},
    )


@pytest.fixture(scope="module")
def mixed(engine):
    """Fifty requests of every shape at once."""
    return _run(engine)


def test_every_request_is_one_record(mixed):
    """Fifty HTTP requests, and as many engine requests as EngineCore had."""
    assert len(mixed.records) == MIXED
    assert {one.answer.trace_id for one in mixed.asked} == {r["trace_id"] for r in mixed.records}
    assert len(mixed.calls) > MIXED  # several choices, several prompts
    left = {one.answer.trace_id for one in mixed.asked if one.leaves_after is not None}
    assert left == {r["trace_id"] for r in mixed.records if r["outcome"] == "cancelled"}


def test_every_token_tick_is_ours(mixed):
    """Stamp and count of each, for every request, to the nanosecond: none missing, none wrong.

    Of a client that left we have every tick until we closed its record.
    """
    assert sum(map(len, mixed.ticks.values())) > 1_000
    for key, told in mixed.told.items():
        ours = mixed.ticks[key] | mixed.late[key]
        if mixed.outcomes[key] == "ok":
            assert told.ended
            assert ours == told.ticks
            assert mixed.late[key] == {}
            assert mixed.calls[key]["usage"]["output_tokens"] == max(told.ticks.values())
        else:
            assert list(ours.items()) == list(told.ticks.items())[: len(ours)]


def test_some_steps_bring_several_tokens(mixed):
    """The load has right guesses, so ticks and tokens are not the same."""
    counts = Counter()
    for told in mixed.told.values():
        counts.update(after - before for before, after in pairwise([0, *told.ticks.values()]))

    assert counts[1] > 500
    assert sum(number for tokens, number in counts.items() if tokens > 1) > 10


def test_every_time_between_tokens_is_ours(mixed):
    """The longest tick of each request; all of them add up to its decode, token for token."""
    for key in (key for key, outcome in mixed.outcomes.items() if outcome == "ok"):
        call, told = mixed.calls[key], mixed.told[key]
        if len(told.ticks) > 1:
            counts, total, _ = call["token_gaps"]
            assert call["longest_gap"] == max(b - a for a, b in pairwise(told.ticks))
            assert total == max(told.ticks) - min(told.ticks)
            assert sum(counts) == max(told.ticks.values()) - min(told.ticks.values())


def test_every_schedule_is_ours(mixed):
    """First queued, first scheduled, first and last token are EngineCore's own.

    They lie inside the windows that further clock readings in EngineCore put around them.
    """
    complete = [key for key, outcome in mixed.outcomes.items() if outcome == "ok"]
    for key in complete:
        call, told = mixed.calls[key], mixed.told[key]
        assert (call["queued"], call["scheduled"]) == (told.queued, told.scheduled[0])
        assert (call["first_token"], call["last_token"]) == (min(told.ticks), max(told.ticks))
        assert told.queued_window[0] <= call["queued"] <= told.queued_window[1]
        assert told.chunks[0][1][0] <= call["scheduled"] <= told.chunks[0][1][1]
        assert call["handed_off"] <= call["queued"] <= call["scheduled"] < call["first_token"]
    assert len(complete) > MIXED / 2


def test_every_preemption_is_ours(mixed):
    """Their number for every request, and the time of waiting again to the nanosecond."""
    preempted = {key: told for key, told in mixed.told.items() if told.preempted}
    whole = [key for key, outcome in mixed.outcomes.items() if outcome == "ok"]

    assert preempted, "the load is meant to run out of blocks"
    for key in whole:
        call, told = mixed.calls[key], mixed.told[key]
        assert (call["preemptions"], call["requeued"]) == (len(told.preempted), told.requeued)


def test_every_chunk_of_a_prompt_is_ours(mixed):
    """Tokens of each step that computed the prompt, and its times, in EngineCore's windows."""
    counts = Counter()
    for key, call in mixed.calls.items():
        told = mixed.told[key].chunks
        if mixed.outcomes[key] == "ok":
            assert call["prefill_chunks"] == len(told)
        counts[call["prefill_chunks"]] += 1
        for (tokens, start, end), (wanted, window, step) in zip(call["chunks"], told, strict=False):
            assert tokens == wanted
            assert window[0] <= start <= window[1]
            assert mixed.ends[step][0] <= end <= mixed.ends[step][1]

    assert max(filter(None, counts)) > 4
    whole = (key for key, outcome in mixed.outcomes.items() if outcome == "ok")
    for call in (mixed.calls[key] for key in whole):
        if not call["preemptions"]:
            computed = call["usage"]["input_tokens"] - call["usage"]["cached_tokens"]
            assert sum(chunk[0] for chunk in call["chunks"]) == computed
            assert call["chunks"][-1][2] == call["first_token"]


def _until_active(server, wanted):
    def active():
        now = server.scrape().by("llm_trace_phase", s.REQUESTS_ACTIVE.prometheus)
        return all(now.get(phase, 0) >= number for phase, number in wanted.items())

    eventually(active, f"never were {wanted} active at once", within=45, log=server.program)


def _leave_in(server, phase, running, waits):
    """The record of a client that leaves while its request is in `phase`, beside busy slots."""

    async def scenario():
        async with AsyncExitStack() as stack:
            opened = [
                await stack.enter_async_context(Connection(server.port)) for _ in range(running + 1)
            ]
            for number, connection in enumerate(opened[:-1]):
                held = await connection.begin(CHAT, chat(f"hold slot {number}", 3_000))
                while not held.token_stamps():
                    await connection.read_some(held)
            answer = await opened[-1].begin(COMPLETIONS, waits)
            await asyncio.to_thread(_until_active, server, {phase: 1})
            opened[-1].abort()
            return answer.trace_id

    trace_id = asyncio.run(scenario())
    eventually(lambda: _quiet(server), "requests are still active", log=server.program)
    return _record(server, trace_id)


def _record(server, trace_id):
    (found,) = (r for r in Recorded(server.records).records if r["trace_id"] == trace_id)
    return found


def test_a_client_that_leaves_the_queue_was_queued(engine):
    """Eight slots are taken: the ninth waits, which only EngineCore's scheduler can say."""
    waits = completion("a word in vain", 8, stream=True)
    record = _leave_in(engine, "queue_wait", SLOTS, waits)
    (call,) = record["calls"]
    told = read_truth(engine.truth)[0][call["id"]]

    assert (record["outcome"], record["last_phase"]) == ("cancelled", "queue_wait")
    assert (call["queued"], call["scheduled"], told.scheduled) == (told.queued, 0, [])
    assert call["prefill_chunks"] is None


def _leave_in_prefill(server):
    """The record of one that leaves while its prompt is computed; a first token may be quicker."""
    for number in range(TRIES):
        waits = completion(f"{number} " + "goes on and on " * 600, 8, stream=True)
        record = _leave_in(server, "prefill", 3, waits)
        if record["last_phase"] != "decode":
            break
    return record


def test_a_client_that_leaves_in_prefill_was_computing(engine):
    """A prompt of many chunks: those computed for nobody are on the record."""
    record = _leave_in_prefill(engine)
    (call,) = record["calls"]
    told = read_truth(engine.truth)[0][call["id"]]

    assert (record["outcome"], record["last_phase"]) == ("cancelled", "prefill")
    assert (call["queued"], call["scheduled"]) == (told.queued, told.scheduled[0])
    assert [chunk[0] for chunk in call["chunks"]] == [x[0] for x in told.chunks][
        : call["prefill_chunks"]
    ]


# --- against vLLM's own counters ------------------------------------------------------------------

BAD = (
    chat("no such model", 4, model="another"),
    chat("no such temperature", 4, temperature=-7),
    chat("too long " * 8_000, 4),
)


@pytest.fixture(scope="module")
def counted(engine, mixed):
    """Two hundred mixed requests and some that vLLM refuses: the load, and how both pages grew."""
    before = engine.scrape()
    load = _run(engine, WAVES)
    refused = [engine.ask(CHAT, body) for body in BAD]
    eventually(lambda: _quiet(engine), "requests are still active", log=engine.program)
    after = engine.scrape()
    load.refused = refused
    load.grown = lambda name, **labels: after.total(name, **labels) - before.total(name, **labels)
    return load


def test_finished_counts_are_vllms(counted):
    """Every engine request that went well is one that vLLM counts, in counter and histogram."""
    finished = [key for key, outcome in counted.outcomes.items() if outcome == "ok"]

    assert counted.grown("vllm:request_success_total") == len(finished)
    assert counted.grown("vllm:e2e_request_latency_seconds_count") == len(finished)


def test_prompt_tokens_are_vllms(counted):
    """vLLM counts a prompt with its first token, once for each choice."""
    ours = [c["usage"]["input_tokens"] for c in counted.calls.values() if c["first_token"]]

    assert counted.grown("vllm:prompt_tokens_total") == sum(ours)


def test_generation_tokens_are_vllms(counted):
    """Every token that vLLM counts is one of ours.

    Ours are also those that the engine still brought for clients that had left: vLLM passes over
    them, and our record is closed only when its server has noticed.
    """
    ours = {key: call["usage"]["output_tokens"] or 0 for key, call in counted.calls.items()}
    more = {key for key, tokens in ours.items() if tokens != counted.heard[key]}

    assert counted.grown("vllm:generation_tokens_total") == sum(counted.heard.values())
    assert {counted.outcomes[key] for key in more} <= {"cancelled"}


def test_what_vllms_histograms_miss_is_what_ours_add(counted):
    """Clients that left and requests that were refused: in our counter, in none of vLLM's."""
    requests, ended = s.REQUESTS.prometheus, f"{s.REQUEST_DURATION.prometheus}_count"
    left = sum(one.leaves_after is not None for one in counted.asked)
    stayed = MANY - left
    grown = {o: counted.grown(requests, llm_trace_outcome=o) for o in s.OUTCOMES}

    assert {key: number for key, number in grown.items() if number} == {
        "ok": stayed,
        "cancelled": left,
        "rejected": len(BAD),
    }
    assert counted.grown(ended) == MANY + len(BAD)
    assert [answer.status for answer in counted.refused] == [404, 400, 400]
    extra = len(counted.calls) - len(counted.records)
    assert counted.grown("vllm:e2e_request_latency_seconds_count") == stayed + extra


def test_nothing_was_contained(engine, counted):
    """No fault of ours in the API server, and none in EngineCore."""
    page = engine.scrape()

    assert page.total(s.ERRORS_INTERNAL.prometheus) == 0
    assert "llm_trace: fault" not in engine.program.text()


# --- the end: this kills the server ---------------------------------------------------------------


BARE_ERROR = {
    "message": "EngineCore encountered an issue. See stack trace (above) for the root cause.",
    "type": "InternalServerError",
    "param": None,
    "code": 500,
}


def _engine_core(server):
    """The process id of EngineCore, which says so in its title."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and "EngineCore" in _title(entry) and _session(entry) == server:
            return int(entry.name)
    raise AssertionError("there is no EngineCore")


def _title(entry):
    try:
        return (entry / "cmdline").read_text(encoding="utf-8", errors="replace")
    except OSError:  # it ended
        return ""


def _session(entry):
    try:
        return os.getsid(int(entry.name))
    except OSError:
        return 0


def test_killing_the_engine_fails_every_request_and_ends_the_server(engine):
    """Twenty streams, some decoding and some queued: twenty errors; then vLLM ends itself, as ever.

    The last event of each stream and the status of the server are those of bare vLLM 0.32, which
    was killed in the same way.
    """

    async def scenario():
        async with AsyncExitStack() as stack:
            opened = [
                await stack.enter_async_context(Connection(engine.port)) for _ in range(STREAMS)
            ]
            begun = [
                await one.begin(CHAT, chat(f"on and on, {number}", 3_000))
                for number, one in enumerate(opened)
            ]
            await asyncio.to_thread(_until_active, engine, {"decode": 4, "queue_wait": 4})
            os.kill(_engine_core(engine.program.process.pid), signal.SIGKILL)
            await asyncio.gather(*map(_to_the_end, opened, begun))
            return begun

    answers = asyncio.run(scenario())
    status = engine.program.process.wait(60)
    ours = [_record(engine, answer.trace_id) for answer in answers]

    assert [record["outcome"] for record in ours] == ["error"] * STREAMS
    assert [answer.status for answer in answers] == [200] * STREAMS
    assert all(answer.events[-1] == {"error": BARE_ERROR} for answer in answers)
    assert status == 0
    roots = [engine.tap.root(answer.trace_id) for answer in answers]
    assert all(root.failed for root in roots)


async def _to_the_end(connection, answer):
    while not answer.complete():
        await connection.read_some(answer)
