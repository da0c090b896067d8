"""A request told back from its spans is the request that was recorded."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from told_requests import MS, Told, rag

import llm_trace
from llm_trace.diagnosis.verdict import judge
from llm_trace.explain import definitions
from llm_trace.explain.judged import verdict_on
from llm_trace.explain.story import tell
from llm_trace.traces.otlp import read
from llm_trace.traces.spans import TraceError, traces

times = st.integers(0, 500)


def stories(document):
    """The stories of each trace."""
    return [tell(spans) for spans in traces(read(json.dumps(document)).spans).values()]


def told(*steps):
    """The record of one request and its only story."""
    one = Told()
    one.serve(*steps)
    [[story]] = stories(one.document)
    return one.records.record, story


@given(st.tuples(times, times, times, times, times))
def test_the_ledger_comes_back_whole(milliseconds):
    """Every phase, to the first token and in all, to the nanosecond."""
    names = ("retrieval", "queue", "prefill", "first_token", "decode")
    record, story = told(*rag(**dict(zip(names, milliseconds, strict=True))))

    assert story.ttft == record.ttft
    assert dict(story.ttft_phases) == dict(record.ttft_phases)
    assert dict(story.phases) == dict(record.phases)
    assert sum(story.phases.values()) == record.duration


def test_a_request_that_ended_early_comes_back_with_what_it_had():
    """It was given up in the queue: there is no first token and nothing after."""
    record, story = told(*rag(ends=RuntimeError("gone")))

    assert story.ttft is None
    assert dict(story.phases) == dict(record.phases)


def test_the_verdict_is_the_recorded_one_or_the_same_found_anew():
    """The spans hold what it was made of."""
    record, story = told(*rag())
    recorded = verdict_on(story, None)
    bare = {k: v for k, v in story.root.attributes.items() if ".verdict" not in k}
    object.__setattr__(story.root, "attributes", bare)
    anew = verdict_on(story, None)

    assert (recorded.recorded, anew.recorded) == (True, False)
    assert recorded.cause == anew.cause == judge(record).cause == "queue"
    assert recorded.reason == anew.reason
    assert recorded.ttft_if_halved == anew.ttft_if_halved


def test_every_definition_measures_its_own_stretch():
    """In ms: 2, 12 and 3 before the engine, 902 in its queue, 20 prefill, 2 delivery."""
    _, story = told(*rag())
    numbers = [
        {row.tool: row.value(story) and row.value(story) / MS for row in rows}
        for rows in (definitions.TTFT, definitions.TPOT)
    ]

    assert numbers[0] == {
        "llm_trace": 941,
        "vLLM histogram": 922,
        "vLLM per request": 20,
        "vLLM bench": 941,
        "guidellm": 941,
        "aiperf": 941,
        "gateway": 941,
    }
    assert numbers[1] == {
        "llm_trace": 30,
        "vLLM histogram": 31,
        "vLLM per request": 31,
        "vLLM bench": 30,
        "guidellm": pytest.approx((941 + 60) / 3),
        "aiperf": 30.5,
    }


def test_what_was_inside_of_a_phase_is_said():
    """The way of a KV cache and the second wait of the preempted are parts, and no phases."""

    def hold_up():
        (call,) = llm_trace.current().calls
        now = call.timeline.clock.monotonic_ns()
        call.transferred(now - 500 * MS, now - 50 * MS)
        call.mark("scheduled", now - 40 * MS)
        call.mark("preempted", now - 30 * MS)

    steps = rag()
    queued = steps.index(901 * MS) + 1
    _, story = told(*steps[:queued], hold_up, *steps[queued:])

    assert story.notes == [
        "in its queue, its KV cache was on its way from elsewhere for 450.0 ms",
        "preempted, it was back in the queue for 30.0 ms",
    ]


def test_the_flight_recorder_keeps_the_last_and_the_slowest():
    """Two of each; what is both is shown once."""
    one = Told(size=2)
    for queue in (700, 10, 900, 20, 30):
        one.serve(*rag(queue=queue))

    kept = sorted(story.ttft_phases["queue_wait"] // MS for [story] in stories(one.document))
    assert kept == [21, 31, 701, 901]


def test_a_trace_whose_root_is_missing_is_refused_with_the_reason():
    """Its phases alone say nothing of the whole."""
    one = Told()
    one.serve(*rag())
    spans = one.document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    document = {"resourceSpans": [{"scopeSpans": [{"spans": spans[:-1]}]}]}

    with pytest.raises(TraceError, match="not the root span"):
        stories(document)


def test_an_app_and_its_engine_are_told_apart():
    """Two ledgers of one trace: the outer first, the inner with its own numbers."""
    one = Told()
    one.serve(*rag())
    document = json.loads(json.dumps(one.document))
    scope = document["resourceSpans"][0]["scopeSpans"][0]
    root = scope["spans"][-1]
    inner = {
        **root,
        "spanId": "00000000000000aa",
        "parentSpanId": root["spanId"],
        "startTimeUnixNano": str(int(root["startTimeUnixNano"]) + MS),
    }
    scope["spans"].append(inner)

    [[outer, engine]] = stories(document)
    assert (outer.root.span_id, engine.root.span_id) == (root["spanId"], inner["spanId"])
    assert engine.root.span_id in {span.span_id for span in outer.spans}


def test_a_phase_that_the_app_named_strangely_is_told_safely():
    """Its name is in the reason; nothing of it may stop an export."""
    one = Told()
    one.serve(lambda: enter("re\ud800rank"), 900 * MS, leave, *rag(queue=1))
    [[story]] = stories(one.document)

    verdict = verdict_on(story, None)
    assert verdict.cause == "app_phase"
    verdict.reason.encode()


_open = []


def enter(name):
    """Begin a phase of the app."""
    _open.append(llm_trace.phase(name))
    _open[-1].__enter__()


def leave():
    """End it."""
    _open.pop().__exit__(None, None, None)
