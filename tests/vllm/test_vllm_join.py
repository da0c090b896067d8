"""The join: engine events find the HTTP request that waits for them, and never disturb vLLM."""

from collections import Counter
from types import SimpleNamespace

import pytest
from vllm_doubles import (
    PREEMPTED,
    QUEUED,
    SCHEDULED,
    SECOND,
    Engine,
    Event,
    Http,
    Output,
    Processor,
    request,
    seconds,
)

import llm_trace_vllm
from llm_trace import semconv as s
from llm_trace.core import faults
from llm_trace.core.freeze import Answer, freeze
from llm_trace.core.outcome import Ending
from llm_trace.core.record import HttpFacts
from llm_trace_vllm import join as join_module
from llm_trace_vllm.join import Join
from llm_trace_vllm.tiers import ENGINE_EVENTS, FINISHED_STATS, STATS_SWEEP


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Counters as in a new process."""
    monkeypatch.setattr(faults, "internal", Counter())
    monkeypatch.setattr(faults, "_logged", set())


@pytest.fixture
def http(monkeypatch):
    """A live request whose clock is also what the join reads."""
    http = Http()
    monkeypatch.setattr(join_module, "_now", lambda: http.fake.now)
    with http:
        yield http


@pytest.fixture
def processor():
    """An output processor that offers everything."""
    return Processor()


def step(processor, http, *outputs, after=0):
    """One step of the engine, `after` ns of ours."""
    http.fake.advance(after)
    return processor.process_outputs(list(outputs), seconds(http.fake.now), None)


def begun(http, *, queued=1_000, scheduled=2_000):
    """Events of a request that was handed off now and waited so many ns."""
    at = http.fake.now
    return [
        Event(QUEUED, seconds(at + queued)),
        Event(SCHEDULED, seconds(at + scheduled)),
    ]


def test_a_request_gets_its_moments(processor, http):
    """Hand-off, queued, scheduled, first and last token, each on its own stamp."""
    join = llm_trace_vllm.trace(Engine(processor))
    handed_off = http.fake.now
    processor.add_request(request("a-1", prompt=range(9)), None, None, 0, None)
    events = begun(http)
    step(
        processor,
        http,
        Output("a-1", events=events, prefill_stats=SimpleNamespace(num_cached_tokens=4)),
        after=5_000,
    )
    step(processor, http, Output("a-1", [7, 8]), after=1_000)
    step(processor, http, Output("a-1", finish_reason="length"), after=1_000)

    call = http.call
    assert join.tier == call.attributes[s.ENGINE_TIER] == ENGINE_EVENTS
    assert call.attributes[s.ENGINE_REQUEST_ID] == "a-1"
    assert (call.handed_off, call.queued, call.scheduled) == (
        handed_off,
        handed_off + 1_000,
        handed_off + 2_000,
    )
    assert (call.first_token, call.last_token) == (handed_off + 5_000, handed_off + 7_000)
    assert call.returned == handed_off + 7_000
    assert call.finish_reason == "length"
    usage = call.usage_now()
    assert (usage.input_tokens, usage.cached_tokens, usage.output_tokens) == (9, 4, 4)


def test_the_first_output_may_be_the_last(processor, http):
    """One token, all in one step: nothing is lost."""
    Join(Engine(processor))
    processor.add_request(request("a-1"))
    step(processor, http, Output("a-1", events=begun(http), finish_reason="stop"), after=3_000)

    call = http.call
    assert 0 < call.queued < call.scheduled < call.first_token == call.last_token
    assert call.returned == call.last_token


def test_a_finish_without_a_token_marks_none(processor, http):
    """An engine that gives up says when, and no token is invented."""
    join = Join(Engine(processor))
    processor.add_request(request("a-1"))
    step(processor, http, Output("a-1", [], finish_reason="abort"), after=3_000)

    assert (http.call.first_token, http.call.finish_reason) == (0, "abort")
    assert join._calls == {}


def test_preemptions_are_counted_with_their_wait(processor, http):
    """Scheduled twice: the first counts as scheduled, the wait between as waiting again."""
    Join(Engine(processor))
    processor.add_request(request("a-1"))
    at = http.fake.now
    events = [*begun(http), Event(PREEMPTED, seconds(at + 3_000))]
    step(processor, http, Output("a-1", events=events), after=3_000)
    again = [Event(SCHEDULED, seconds(at + 10_000)), Event(99, seconds(at + 10_001))]
    step(processor, http, Output("a-1", events=again), after=9_000)

    call = http.call
    assert (call.preemptions, call.requeued_ns) == (1, 7_000)
    assert call.scheduled == at + 2_000
    assert call.first_token == at + 3_000
    assert call.generated == 2


def test_children_of_one_request_are_calls_of_one(processor, http):
    """Two choices: two engine requests, and the earlier first token is the one that shows."""
    Join(Engine(processor))
    for index in (0, 1):
        processor.add_request(request(f"{index}_a-1"), None, object(), index)
    step(processor, http, Output("1_a-1", events=begun(http)), after=4_000)
    step(processor, http, Output("0_a-1", events=begun(http, queued=-3_000)), after=1_000)

    by_id = {call.attributes[s.ENGINE_REQUEST_ID]: call for call in http.timeline.calls}
    assert by_id.keys() == {"0_a-1", "1_a-1"}
    assert by_id["1_a-1"].first_token < by_id["0_a-1"].first_token
    record = frozen(http)
    assert record.visible.attributes[s.ENGINE_REQUEST_ID] == "1_a-1"
    assert record.usage.output_tokens == 2


def frozen(http):
    """The record of a request that ends now, well."""
    http.timeline.first_token_sent = http.timeline.last_token_sent = http.fake.now + 10
    return freeze(
        http.timeline,
        Answer(Ending(status=200, complete=True), HttpFacts(), "chat", streamed=True),
        http.fake.now + 20,
    )


def test_the_ledger_of_a_joined_request_has_the_engines_phases(processor, http):
    """Queue, prefill and first token, and not a nanosecond elsewhere."""
    Join(Engine(processor))
    processor.add_request(request("a-1"))
    step(processor, http, Output("a-1", events=begun(http)), after=5_000)
    record = frozen(http)

    assert record.ttft_phases == {"queue_wait": 2_000, "prefill": 3_000, "first_token": 10}
    assert record.moments_dropped == 0


def test_epoch_stamps_are_taken_for_another_clock(processor, http):
    """Durations inside the engine stay right, and its end is when we heard of it."""
    join = Join(Engine(processor))
    processor.add_request(request("a-1"))
    handed_off, epoch = http.fake.now, 1_700_000_000.0
    http.fake.advance(3 * SECOND)
    events = [Event(QUEUED, epoch + 0.5), Event(SCHEDULED, epoch + 1.0)]
    processor.process_outputs([Output("a-1", events=events)], epoch + 3.0, None)

    call = http.call
    assert join.clock.foreign is True
    assert call.first_token == handed_off + 3 * SECOND
    near = {"abs": 1_000}  # a float of seconds since the epoch tells no less
    assert call.scheduled == pytest.approx(handed_off + SECOND, **near)
    assert call.queued == pytest.approx(handed_off + SECOND // 2, **near)


def test_stamps_before_the_hand_off_are_taken_for_another_clock(processor, http):
    """An engine on a host that was started later: its clock is behind ours."""
    join = Join(Engine(processor))
    http.fake.advance(100 * SECOND)
    processor.add_request(request("a-1"))
    handed_off = http.fake.now
    http.fake.advance(2 * SECOND)
    events = [Event(QUEUED, 10.25), Event(SCHEDULED, 10.75)]
    processor.process_outputs([Output("a-1", events=events)], 12.0, None)

    call = http.call
    assert join.clock.foreign is True
    assert call.first_token == handed_off + 2 * SECOND
    assert (call.queued, call.scheduled) == (
        handed_off + SECOND // 4,
        handed_off + 3 * SECOND // 4,
    )


def test_only_the_engines_first_execution_is_cold(processor, http):
    """What was scheduled before the first step ended paid for the warm-up; the next did not."""
    Join(Engine(processor))
    processor.add_request(request("a-1"))
    processor.add_request(request("a-2"))
    step(processor, http, Output("a-1", events=begun(http)), after=5_000)
    later = [Event(QUEUED, seconds(http.fake.now)), Event(SCHEDULED, seconds(http.fake.now + 10))]
    step(processor, http, Output("a-2", events=later), after=5_000)

    assert [call.cold for call in http.timeline.calls] == [True, False]


def test_cached_tokens_of_older_versions(processor, http):
    """Before 0.24 the count lay on the output itself."""
    Join(Engine(processor))
    processor.add_request(request("a-1"))
    output = Output("a-1", events=begun(http))
    output.num_cached_tokens = 2
    step(processor, http, output, after=3_000)

    assert http.call.usage_now().cached_tokens == 2


def test_a_route_of_no_known_kind_has_the_operation_of_its_engine(processor, http):
    """So that no span is called by nothing, and no metric has an empty label."""
    Join(Engine(processor))
    processor.add_request(request("a-1"))

    assert http.call.operation == "text_completion"


def test_embedded_prompts_and_adapters(processor, http):
    """No token ids: no count of them; an adapter is named, the base model is not."""
    Join(Engine(processor))
    bare = SimpleNamespace(request_id="a-1", lora_request=SimpleNamespace(lora_name="sql"))
    processor.add_request(bare)
    processor.add_request(request("a-2", prompt=()))
    first, second = http.timeline.calls

    assert (first.model, first.usage_now().input_tokens) == ("sql", None)
    assert (second.model, second.usage_now().input_tokens) == ("", 0)


def test_strangers_are_left_alone(processor):
    """Requests from outside any HTTP request are not joined, and their outputs pass."""
    join = Join(Engine(processor))
    assert processor.add_request(request("a-1")) == "added"
    assert processor.process_outputs([Output("a-1")]) == "processed"

    assert join._calls == {}
    assert processor.heard == [("added", "a-1", 0), ("step", ["a-1"])]


def test_vllm_gets_what_it_gave(processor, http):
    """Arguments by position or by name, new ones included, and results: as without us."""
    heard = []
    processor.process_outputs = lambda *args, **kwargs: heard.append((args, kwargs)) or "told"
    Join(Engine(processor))
    outputs = [Output("a-1")]

    assert processor.process_outputs(outputs, 1.0, iteration_stats=3, weight_version=4) == "told"
    assert heard == [((outputs, 1.0), {"iteration_stats": 3, "weight_version": 4})]


def test_aborted_requests_are_forgotten(processor, monkeypatch):
    """vLLM never says that an abort ended: the map stays bounded by what is alive."""
    monkeypatch.setattr(join_module, "_SWEEP_AT", 8)
    join = Join(Engine(processor))
    living = Http()
    with living:
        processor.add_request(request("alive"))
    for number in range(100):
        with Http() as aborted:
            processor.add_request(request(f"a-{number}"))
        aborted.timeline.closed = True
        assert len(join._calls) <= 9

    assert "alive" in join._calls


def test_many_living_requests_are_swept_ever_more_rarely(processor, monkeypatch, http):
    """A sweep that frees nothing doubles the distance to the next, so it costs next to nothing."""
    monkeypatch.setattr(join_module, "_SWEEP_AT", 4)
    join = Join(Engine(processor))
    for number in range(20):
        processor.add_request(request(f"a-{number}"))

    assert len(join._calls) == 20
    assert join._sweep_at == 32


@pytest.mark.parametrize("method", ["added", "processed"])
def test_a_hook_that_fails_steps_aside(processor, http, method, monkeypatch, caplog):
    """The original runs with its result; the tier drops; it is counted and logged once."""

    def broken(*_args, **_kwargs):
        raise RuntimeError("a surface that we do not know")

    monkeypatch.setattr(Join, method, broken)
    join = Join(Engine(processor))
    with faults.production():
        assert processor.add_request(request("a-1")) == "added"
        assert processor.process_outputs([Output("a-1")], 1.0) == "processed"

    assert [heard[0] for heard in processor.heard] == ["added", "step"]
    assert join.tier == STATS_SWEEP
    assert faults.internal.total() == len(caplog.records) == 1


def test_after_a_fault_nothing_more_is_joined(processor, http):
    """Half a story is worse than none: later requests get the lower tier."""
    join = Join(Engine(processor))
    processor.add_request(request("a-1"))
    with faults.production():
        processor.process_outputs([SimpleNamespace(request_id="a-1")], 1.0)
    processor.add_request(request("a-2"))
    step(processor, http, Output("a-2", events=begun(http)))

    assert join.tier == STATS_SWEEP
    assert join._calls == {}
    assert len(http.timeline.calls) == 1
    assert http.call.first_token == 0


def test_an_engine_is_joined_once(processor):
    """A second trace, or the middleware's, finds the first one's join."""
    engine = Engine(processor)

    assert llm_trace_vllm.trace(engine) is llm_trace_vllm.trace(engine)


@pytest.mark.parametrize(
    ("engine", "tier"),
    [
        (Engine(), FINISHED_STATS),
        (Engine(SimpleNamespace(request_states={})), STATS_SWEEP),
    ],
)
def test_an_engine_that_offers_less_is_joined_lower(engine, tier):
    """Nothing is wrapped and nothing raised."""
    assert Join(engine).tier == tier


def test_the_choices_of_an_answer_read_one_prompt(processor, http):
    """Each is an engine request of its own; so is each of several prompts, which are not one."""
    Join(Engine(processor))
    for index in range(2):
        processor.add_request(request(f"{index}_a-1"), None, object(), index, None)
    processor.add_request(request("a-2"), None, parent_req=None, request_index=1)

    assert [call.same_prompt for call in http.timeline.calls] == [False, True, False]


# --- batch, ranks, rhythm -----------------------------------------------------------------------


def stats(running, waiting, usage=0.25, **more):
    """What the scheduler reports after a step."""
    return SimpleNamespace(
        num_running_reqs=running, num_waiting_reqs=waiting, kv_cache_usage=usage, **more
    )


def fcfs(processor, **client):
    """An engine client that takes requests in order."""
    engine = Engine(processor)
    engine.vllm_config = SimpleNamespace(scheduler_config=SimpleNamespace(policy="fcfs"))
    engine.engine_core = SimpleNamespace(**client)
    return engine


def test_the_engines_ticks_make_the_rhythm(processor, http):
    """Three steps of 10, one of 40 that computed another's prompt: its cause, and what it cost."""
    join = Join(Engine(processor))
    processor.add_request(request("a-1"))
    step(processor, http, Output("a-1", events=begun(http)), after=5_000)
    for _ in range(3):
        step(processor, http, Output("a-1"), after=10_000)
    processor.add_request(request("a-2"))
    step(processor, http, Output("a-1"), Output("a-2", events=begun(http)), after=40_000)
    join.reported(None, 0)
    record = http.timeline.calls[0].freeze()

    assert (record.longest_gap, record.stall, record.stall_cause) == (40_000, 30_000, "prefill")
    assert (record.token_gaps.total, sum(record.token_gaps.counts)) == (70_000, 4)
    assert record.usage.output_tokens == 5


def test_a_chunk_of_another_prompt_makes_a_long_step(processor, http):
    """A prompt that is computed in chunks has no output yet; that more run than emit shows it."""
    join = Join(fcfs(processor))
    processor.request_states = {"a-1": 1, "a-2": 1}
    processor.add_request(request("a-1"))
    step(processor, http, Output("a-1", events=begun(http)), after=5_000)
    join.reported(stats(1, 0), 0)
    processor.add_request(request("a-2"))
    for after in (10_000, 40_000, 10_000):
        step(processor, http, Output("a-1"), after=after)
        join.reported(stats(2 if after == 40_000 else 1, 0), 0)

    assert http.timeline.calls[0].freeze().stall_cause == "prefill"


def test_a_preempted_request_stalled(processor, http):
    """Its gap spans the steps that it missed."""
    Join(Engine(processor))
    for name in ("a-1", "a-2"):
        processor.add_request(request(name))
    both = [Output(name, events=begun(http)) for name in ("a-1", "a-2")]
    step(processor, http, *both, after=5_000)
    step(processor, http, Output("a-1"), Output("a-2"), after=10_000)
    out, back = http.fake.now + 100, http.fake.now + 45_000
    for _ in range(5):
        step(processor, http, Output("a-1"), after=10_000)
    again = [Event(PREEMPTED, seconds(out)), Event(SCHEDULED, seconds(back))]
    step(processor, http, Output("a-1"), Output("a-2", events=again), after=10_000)
    step(processor, http, Output("a-1"), Output("a-2"), after=10_000)
    steady, stalled = (call.freeze() for call in http.timeline.calls)

    assert (steady.longest_gap, steady.stall, steady.stall_cause) == (10_000, 0, None)
    assert (stalled.longest_gap, stalled.stall, stalled.stall_cause) == (
        60_000,
        50_000,
        "preempted",
    )
    assert (stalled.preemptions, stalled.requeued) == (1, 44_900)


def test_a_token_that_came_after_the_preemption_did_not_stall(processor, http):
    """Scheduling runs a step ahead: the news of the preemption comes with a token that was due."""
    Join(Engine(processor))
    for name in ("a-1", "a-2"):
        processor.add_request(request(name))
    both = [Output(name, events=begun(http)) for name in ("a-1", "a-2")]
    step(processor, http, *both, after=5_000)
    step(processor, http, Output("a-1"), Output("a-2"), after=10_000)
    out = [Event(PREEMPTED, seconds(http.fake.now + 9_000))]
    step(processor, http, Output("a-1"), Output("a-2", events=out), after=10_000)
    for _ in range(5):
        step(processor, http, Output("a-1"), after=10_000)
    back = [Event(SCHEDULED, seconds(http.fake.now))]
    step(processor, http, Output("a-1"), Output("a-2", events=back), after=10_000)
    record = http.timeline.calls[1].freeze()

    assert (record.longest_gap, record.stall_cause) == (60_000, "preempted")
    assert (record.preemptions, record.requeued) == (1, 51_000)
    assert [gap.preempted for gap in http.timeline.calls[1].ticks._missed] == [True]


def test_the_batch_is_what_the_step_before_left(processor, http):
    """Three ran and one waited when this request was first scheduled."""
    join = Join(fcfs(processor))
    processor.add_request(request("first"))
    step(processor, http, Output("first", events=begun(http)), after=3_000)
    join.reported(stats(3, 1), 0)
    processor.add_request(request("a-1"))
    step(processor, http, Output("a-1", events=begun(http)), after=3_000)
    join.reported(stats(4, 0), 0)
    first, record = (call.freeze() for call in http.timeline.calls)

    assert (first.running, first.waiting, first.kv_usage) == (None, None, None)
    assert (record.running, record.waiting, record.kv_usage) == (3, 1, 0.25)
    assert record.rank is None


def test_whoever_follows_those_that_ended_together_joins_an_empty_batch(processor, http):
    """A step of last outputs only is heard of a while after it, when the next has begun."""
    join = Join(fcfs(processor))
    for name in ("first", "a-1"):
        processor.add_request(request(name))
    step(processor, http, Output("first", events=begun(http)), after=3_000)
    join.reported(stats(1, 1), 0)
    step(processor, http, Output("first", finish_reason="stop"), after=3_000)
    scheduled = [Event(SCHEDULED, seconds(http.fake.now + 100))]
    http.fake.advance(400)
    join.reported(stats(0, 1), 0)
    step(processor, http, Output("a-1", events=scheduled), after=3_000)
    join.reported(stats(1, 0), 0)
    record = http.timeline.calls[1].freeze()

    assert (record.running, record.waiting) == (0, 1)


def test_an_engine_shared_with_other_servers_is_not_counted(processor, http):
    """Its counts are those of all servers, and come to only one of them."""
    join = Join(fcfs(processor, client_count=2))
    processor.request_states = {"a-1": 1}
    processor.add_request(request("a-1"))
    http.fake.advance(SECOND)
    join.reported(stats(0, 1), 0)

    assert http.timeline.live_phase() == "engine"
    assert http.call.freeze().running is None


def test_live_requests_wait_or_compute(processor, http):
    """By the counts of steps that brought no output: the oldest computes, the other waits."""
    join = Join(fcfs(processor))
    other = Http(http.fake)
    processor.request_states = {"a-1": 1, "a-2": 1}
    processor.add_request(request("a-1"))
    with other:
        processor.add_request(request("a-2"))
    http.fake.advance(SECOND)
    join.reported(stats(1, 1), 0)

    assert (http.timeline.live_phase(), other.timeline.live_phase()) == ("prefill", "queue_wait")
    record = cancelled(other)
    assert (record.last_phase, record.visible.inferred) == ("queue_wait", True)
    assert cancelled(http).last_phase == "prefill"


def cancelled(http):
    """The record of a request whose client leaves now."""
    http.fake.advance(10)
    http.timeline.body_complete = http.timeline.received
    return freeze(
        http.timeline,
        Answer(Ending(client_gone=True), HttpFacts(), "chat", streamed=True),
        http.fake.now,
    )


def test_counts_that_include_the_dead_say_nothing(processor, http):
    """The scheduler has not heard of an abort yet: the next step will tell."""
    join = Join(fcfs(processor))
    processor.request_states = {"a-1": 1}
    processor.add_request(request("a-1"))
    http.fake.advance(SECOND)
    join.reported(stats(1, 1), 0)

    assert http.timeline.live_phase() == "engine"


def test_steps_of_several_engines_are_told_apart(processor, http):
    """Two data-parallel engines take turns: each request ticks with its own."""
    join = Join(Engine(processor))
    join.ranks = 2
    for name in ("a-0", "a-1", "b-0"):
        processor.add_request(request(name))
    turns = [
        (0, [Output("a-0", events=begun(http))]),
        (1, [Output("a-1", events=begun(http))]),
        (0, [Output("b-0", events=begun(http))]),
        *[(0, [Output("a-0"), Output("b-0")]), (1, [Output("a-1")])] * 3,
    ]
    for rank, outputs in turns:
        step(processor, http, *outputs, after=10_000)
        join.reported(stats(1, 0), rank)
    records = [call.freeze() for call in http.timeline.calls]

    assert [record.rank for record in records] == [0, 1, 0]
    assert [sum(record.token_gaps.counts) for record in records] == [3, 3, 3]
    assert [record.token_gaps.total for record in records] == [70_000, 70_000, 50_000]
    assert all(not call.ticks._missed for call in http.timeline.calls[1:])


def test_the_parts_of_a_step_are_one_step(processor, http):
    """vLLM hands the outputs of a large step on in parts; one may be of new requests only."""
    join = Join(Engine(processor))
    join.ranks = 2
    for name in ("a-0", "a-1"):
        processor.add_request(request(name))
    parts = [[Output(name, events=begun(http))] for name in ("a-0", "a-1")]
    http.fake.advance(5_000)
    for part in parts:
        processor.process_outputs(part, seconds(http.fake.now), None)
    join.reported(stats(2, 0), 1)
    for _ in range(3):
        step(processor, http, Output("a-0"), Output("a-1"), after=10_000)
        join.reported(stats(2, 0), 1)
    records = [call.freeze() for call in http.timeline.calls]

    assert [record.first_token for record in records] == [http.fake.now - 30_000] * 2
    assert [record.token_gaps.total for record in records] == [30_000] * 2
    assert [record.rank for record in records] == [1, 1]


def test_an_engine_that_reports_before_its_first_output_has_steps_of_its_own(processor, http):
    """It computes a prompt in chunks, while the other one decodes."""
    join = Join(Engine(processor))
    join.ranks = 2
    for name in ("a-0", "a-1"):
        processor.add_request(request(name))
    step(processor, http, Output("a-0", events=begun(http)), after=5_000)
    join.reported(stats(1, 0), 0)
    join.reported(stats(1, 0), 1)
    step(processor, http, Output("a-1", events=begun(http)), after=5_000)
    join.reported(stats(1, 0), 1)
    for rank in (0, 1) * 3:
        step(processor, http, Output(f"a-{rank}"), after=10_000)
        join.reported(stats(1, 0), rank)
    records = [call.freeze() for call in http.timeline.calls]

    assert [record.rank for record in records] == [0, 1]
    assert [record.stall_cause for record in records] == [None, None]
    assert not any(call.ticks._missed for call in http.timeline.calls)


def test_a_stop_string_ends_a_request_at_its_step(processor, http):
    """vLLM finds it itself, and the engine goes on until it hears of it: for nobody."""
    stopped = SimpleNamespace(reqs_to_abort=["a-1"])
    processor.process_outputs = lambda outputs, *_: stopped if len(outputs) == 2 else None
    Join(Engine(processor))
    for name in ("a-1", "a-2"):
        processor.add_request(request(name))
    both = [Output(name, events=begun(http)) for name in ("a-1", "a-2")]
    step(processor, http, *both, after=5_000)
    at = http.fake.now
    step(processor, http, Output("a-1"), after=5_000)

    call = http.timeline.calls[0]
    assert (call.finish_reason, call.returned, call.last_token, call.generated) == (
        "stop",
        at,
        at,
        1,
    )


def test_a_request_that_is_aborted_by_its_id_was_given_up(processor, http):
    """Whoever asked for it named the client's id; vLLM says which of its own that is."""
    Join(Engine(processor))
    for name in ("a-1-internal", "a-2-internal"):
        processor.add_request(request(name))

    assert processor.abort_requests(["a-1", "of nobody"]) == ["a-1-internal", "of nobody-internal"]
    assert [call.finish_reason for call in http.timeline.calls] == ["abort", None]
    assert not http.timeline.calls[0].returned


def test_a_legs_adapters_and_external_tokens_are_kept(processor, http):
    """The decoding leg of a disaggregated request, with an adapter."""
    Join(Engine(processor))
    transfer = {"kv_transfer_params": {"do_remote_prefill": True}}
    processor.add_request(
        request(
            "a-1",
            lora_request=SimpleNamespace(lora_name="sql"),
            sampling_params=SimpleNamespace(extra_args=transfer),
        )
    )
    told = SimpleNamespace(num_cached_tokens=3, num_external_cached_tokens=2)
    step(processor, http, Output("a-1", events=begun(http), prefill_stats=told), after=5_000)
    record = http.call.freeze()

    assert (record.leg, record.external_tokens, record.usage.cached_tokens) == ("decode", 2, 3)
    assert record.attributes[s.ENGINE_LORA] == record.model == "sql"


def test_pooling_has_no_token_and_all_else(processor, http):
    """Queue and computation of an embedding; its result is no token."""
    Join(Engine(processor))
    processor.add_request(request("a-1"))
    told = SimpleNamespace(num_cached_tokens=0)
    output = Output("a-1", [], events=begun(http), finish_reason="stop", prefill_stats=told)
    output.pooling_output = object()
    step(processor, http, output, after=5_000)
    http.fake.advance(10)
    record = freeze(
        http.timeline,
        Answer(Ending(status=200, complete=True), HttpFacts(), "embeddings"),
        http.fake.now,
    )

    assert record.phases == {"queue_wait": 2_000, "prefill": 3_000, "finish": 10}
    assert record.usage.cached_tokens == 0
    assert record.visible.token_gaps is None


def test_a_request_that_waited_for_the_engine_to_wake_is_cold(processor, http):
    """From the hand-off, or from falling asleep; and the engine's next execution is a first one."""
    join = Join(Engine(processor))
    decoding, gone = Http(http.fake), Http(http.fake)
    for other, name in ((decoding, "d-1"), (gone, "g-1")):
        with other:
            processor.add_request(request(name))
    step(processor, http, Output("d-1", events=begun(http)), after=5_000)
    gone.timeline.closed = True
    join.slept(asleep=False)
    join.slept(asleep=True)
    http.fake.advance(SECOND)
    processor.add_request(request("a-1"))
    handed_off = http.fake.now
    join.slept(asleep=True)
    http.fake.advance(2 * SECOND)
    join.slept(asleep=False)

    assert decoding.timeline.intervals == gone.timeline.intervals == []
    (load,) = http.timeline.intervals
    assert (load.phase, load.start, load.end) == ("model_load", handed_off, http.fake.now)
    step(processor, http, Output("a-1", events=begun(http, queued=-SECOND)), after=5_000)
    assert frozen(http).start_state == "cold"


def test_the_end_of_a_pause_makes_nothing_cold(processor, http):
    """An engine that wakes up and was not asleep has everything where it was."""
    join = Join(Engine(processor))
    with Http(http.fake):
        processor.add_request(request("w-1"))
    step(processor, http, Output("w-1", events=begun(http)), after=5_000)
    join.slept(asleep=False)
    processor.add_request(request("a-1"))
    step(processor, http, Output("a-1", events=begun(http)), after=5_000)

    assert frozen(http).start_state != "cold"


def test_an_engine_without_events_is_said_once(processor, http, caplog):
    """Its statistics are off: whoever wonders where the split is finds the reason in the log."""
    Join(Engine(processor))
    for name in ("a-1", "a-2"):
        processor.add_request(request(name))
        step(processor, http, Output(name), after=1_000)

    assert [r.message.count("--disable-log-stats") for r in caplog.records] == [1]
    assert all(call.first_token for call in http.timeline.calls)
    assert frozen(http).ttft_phases["engine"] > 0


@pytest.mark.parametrize(("reason", "queued"), [("abort", False), ("error", True)])
def test_a_request_that_is_given_up_before_any_output_says_nothing_of_the_engine(
    processor, http, caplog, reason, queued
):
    """vLLM may send its end with the events that it noted, or without: it had not begun."""
    Join(Engine(processor))
    for name in ("given-up", "a-1"):
        processor.add_request(request(name))
    events = begun(http)
    noted = events[:1] if queued else None
    step(processor, http, Output("given-up", [], noted, finish_reason=reason), after=5_000)
    step(processor, http, Output("a-1", events=events), after=5_000)
    given_up, first = http.timeline.calls

    assert caplog.records == []
    assert (given_up.finish_reason, given_up.first_token, given_up.returned) == (
        reason,
        0,
        http.fake.now - 5_000,
    )
    assert first.cold
