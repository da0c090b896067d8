"""Which facts make which verdict, and what a verdict says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged_records import MS, told

from llm_trace import semconv as s
from llm_trace.core.usage import Usage
from llm_trace.diagnosis import catalogue, devices
from llm_trace.diagnosis.floors import Floors
from llm_trace.diagnosis.precision import precision_of
from llm_trace.diagnosis.roofline import Roofline
from llm_trace.diagnosis.rules import APP_PHASE, EDGE, RULES
from llm_trace.diagnosis.shape import shape_of
from llm_trace.diagnosis.verdict import judge

LLAMA = catalogue.find("Llama-3.1-8B").config
A100 = Roofline(shape_of(LLAMA), precision_of(LLAMA), devices.find("A100 SXM 80GB"))
LONG = Usage(input_tokens=3000, output_tokens=21, cached_tokens=0)
"""Its floor on an A100 is 142 ms."""

QUEUED = {
    "scheduled": 904,
    "first_token_engine": 924,
    "first_token_sent": 926,
    "last_token_sent": 1126,
    "finished": 1127,
}
SLOW_PREFILL = {
    "first_token_engine": 404,
    "first_token_sent": 406,
    "last_token_sent": 606,
    "finished": 607,
}
SLOW_DELIVERY = {"first_token_sent": 824, "last_token_sent": 1024, "finished": 1025}
SLOW_DECODE = {"last_token_sent": 1026, "finished": 1027}


def decided(record, floors=None):
    """The cause and how sure it is."""
    verdict = judge(record, floors)
    return verdict.cause, verdict.confidence


@pytest.mark.parametrize(
    ("call", "floors", "expected"),
    [
        ({}, None, ("queue", "medium")),
        ({"running": 4, "waiting": 3, "kv_usage": 0.4}, Floors(slots=4), ("queue_slots", "high")),
        (
            {"running": 2, "most_running": 4, "waiting": 3, "kv_usage": 0.4},
            Floors(slots=4),
            ("queue_slots", "high"),
        ),
        ({"running": 2, "waiting": 3, "kv_usage": 0.4}, Floors(slots=4), ("queue", "medium")),
        (
            {"running": 1, "most_running": 1, "waiting": 0, "kv_usage": 0.1},
            Floors(slots=8),
            ("queue_deferred", "high"),
        ),
        (
            {"running": 2, "waiting": 3, "kv_usage": 0.4, "most_kv_usage": 0.95},
            Floors(slots=99),
            ("queue_kv_cache", "high"),
        ),
        ({"running": 4, "waiting": 3, "kv_usage": 0.4}, None, ("queue_slots", "medium")),
        (
            {"running": 9, "waiting": 3, "kv_usage": 0.97},
            Floors(slots=99),
            ("queue_kv_cache", "high"),
        ),
        ({"running": 9, "waiting": 3, "kv_usage": 0.97}, None, ("queue_kv_cache", "high")),
        (
            {"running": 1, "most_running": 2, "waiting": 1, "deferred": 1, "kv_usage": 0.1},
            Floors(slots=99),
            ("queue_deferred", "high"),
        ),
    ],
)
def test_a_wait_in_the_queue_is_told_by_what_was_full(call, floors, expected):
    """Slots before cache, something else where both had room, no cause where nobody says."""
    assert decided(told(call=call, **QUEUED), floors) == expected


def test_a_wait_before_the_engine_is_no_wait_for_a_slot():
    """The scheduler had the request late: slots and cache do not matter."""
    late = told(queued=900, call={"running": 4, "kv_usage": 1.0}, **QUEUED)

    assert decided(late, Floors(slots=4)) == ("queue_before_engine", "high")


def test_an_inferred_wait_says_nothing_of_its_parts():
    """That it was seen in the queue late does not mean that it came there late."""
    late = told(queued=900, call={"running": 4, "kv_usage": 1.0, "inferred": True}, **QUEUED)

    assert decided(late, Floors(slots=4)) == ("queue_slots", "high")


def test_a_blocked_loop_explains_a_late_hand_over():
    """The event loop could not hand the request on."""
    late = told(queued=900, facts={"loop_lag": 880 * MS}, **QUEUED)

    assert decided(late) == ("event_loop", "high")


@pytest.mark.parametrize(
    ("phase", "cause"),
    [
        ("retrieval", "retrieval"),
        ("model_load", "cold_start"),
        ("generation", "generation"),
        ("rerank", "app_phase"),
    ],
)
def test_an_interval_of_the_app_is_named(phase, cause):
    """Retrieval, loading, earlier calls, and what the app names itself."""
    later = {name: at + 500 for name, at in told_moments().items()}

    assert decided(told((phase, 1, 501), **later)) == (cause, "high")


def told_moments():
    """The moments after admission."""
    return {
        "handed_off": 2,
        "queued": 3,
        "scheduled": 4,
        "first_token_engine": 24,
        "first_token_sent": 26,
        "last_token_sent": 226,
        "finished": 227,
    }


@pytest.mark.parametrize(
    ("usage", "call", "floors", "expected"),
    [
        (LONG, {}, None, ("prefill", "high")),
        (Usage(), {}, None, ("prefill", "medium")),
        (LONG, {}, Floors(A100), ("prefill_near_floor", "high")),
        (Usage(600, 21, 0), {}, Floors(A100), ("prefill_far_from_floor", "high")),
        (Usage(600, 21, 0), {"running": 5}, Floors(A100), ("prefill_contended", "high")),
        (LONG, {"prefill_chunks": 6}, Floors(step_tokens=512), ("prefill", "high")),
        (LONG, {"prefill_chunks": 11}, Floors(step_tokens=512), ("prefill_contended", "high")),
        (LONG, {}, Floors(prefix_caching=False), ("cache_lost", "high")),
        (LONG, {}, Floors(prefix_caching=True), ("prefill", "high")),
        (LONG, {"requeued": 300, "preemptions": 1}, Floors(A100), ("preempted", "high")),
        (Usage(30_000, 21, 0), {}, Floors(A100), ("prefill", "medium")),
    ],
)
def test_a_long_prefill_is_told_by_its_floor_and_its_company(usage, call, floors, expected):
    """400 ms of it: near or far from the floor, alone or among others, cached or not."""
    assert decided(told(usage=usage, call=call, **SLOW_PREFILL), floors) == expected


def test_a_ratio_under_one_blames_the_settings():
    """No kernel is faster than the floor: the device or the model is another one."""
    verdict = judge(told(usage=Usage(30_000, 21, 0), **SLOW_PREFILL), Floors(A100))

    assert verdict.ratios.prefill < 1
    assert "under 1: the settings `device` and `model_config`" in verdict.reason
    assert verdict.next_check.startswith("Correct the settings")


def test_few_tokens_that_took_long_are_not_told_to_be_fewer():
    """A prompt of 18 tokens is not what takes 400 ms."""
    verdict = judge(told(usage=Usage(18, 21, 0), **SLOW_PREFILL))

    assert (verdict.cause, verdict.confidence) == ("prefill", "medium")
    assert "starved" in verdict.next_check


def test_a_cold_engine_explains_its_first_prefill():
    """Whether the engine splits its time or not."""
    split = told(facts={"start_state": "cold"}, **SLOW_PREFILL)
    whole = told(
        facts={"start_state": "cold"},
        queued=None,
        scheduled=None,
        **{**SLOW_PREFILL, "first_token_engine": None},
    )

    assert decided(split) == decided(whole) == ("cold_start", "high")


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"loop_lag": 700 * MS}, ("event_loop", "high")),
        ({"send_wait": 700 * MS}, ("back_pressure", "high")),
        ({"loop_lag": 3 * MS, "send_wait": 2 * MS}, ("delivery", "medium")),
        ({}, ("delivery", "medium")),
        ({"edge": 2000 * MS}, ("edge", "medium")),
    ],
)
def test_a_late_delivery_is_told_by_who_held_it(facts, expected):
    """The event loop, the reader, or nobody that was seen; or all of it before the server."""
    assert decided(told(facts=facts, **SLOW_DELIVERY)) == expected


@pytest.mark.parametrize(
    ("call", "floors", "expected"),
    [
        ({}, None, ("decode", "medium")),
        ({"stall": 600 * MS, "stall_cause": "prefill"}, None, ("decode_stalled", "high")),
        ({"stall": 600 * MS}, None, ("decode_stalled", "medium")),
        ({"requeued": 500, "preemptions": 2}, None, ("preempted", "high")),
        ({"last_token": 300}, None, ("delivery", "medium")),
        ({"last_token": 1020}, Floors(A100), ("decode_far_from_floor", "high")),
    ],
)
def test_a_long_decode_is_told_by_what_it_lost(call, floors, expected):
    """A second of it behind a first token of 26 ms."""
    assert decided(told(call=call, **SLOW_DECODE), floors) == expected


def test_a_slow_reader_is_told_by_what_send_held_back():
    """The engine was done long before; `send` says who was waited for."""
    slow = told(call={"last_token": 300}, facts={"send_wait_total": 700 * MS}, **SLOW_DECODE)

    assert decided(slow) == ("back_pressure", "high")


def test_decode_at_its_floor_is_said():
    """20 steps of 8.7 ms, where the weights alone take 7.4; the first token was negligible."""
    quick = {"first_token_engine": 5, "first_token_sent": 6, "last_token_sent": 180}

    assert decided(told(finished=181, **quick), Floors(A100)) == ("decode_near_floor", "high")


def test_a_slow_first_token_is_judged_however_long_the_answer_is():
    """Two seconds in the queue matter, though an answer of a minute follows."""
    moments = {
        "scheduled": 2004,
        "first_token_engine": 2024,
        "first_token_sent": 2026,
        "last_token_sent": 60_000,
        "finished": 60_001,
    }

    assert decided(told(**moments))[0] == "queue"


@pytest.mark.parametrize("lost", [{"stall": 31_000 * MS}, {"requeued": 31_000, "preemptions": 1}])
def test_what_no_rule_would_tell_of_decode_does_not_blame_it(lost):
    """Half a minute in the queue, and as much lost in an answer of a quarter of an hour."""
    moments = {
        "scheduled": 30_004,
        "first_token_engine": 30_024,
        "first_token_sent": 30_026,
        "last_token_sent": 1_000_000,
        "finished": 1_000_001,
    }

    assert decided(told(call=lost, **moments))[0] == "queue"
    assert decided(told(call={"stall": 250_000 * MS}, **moments))[0] == "decode_stalled"


def test_an_engine_that_gives_no_split_is_not_guessed_at():
    """There is no verdict without the numbers for it."""
    blind = told(
        queued=None, scheduled=None, call={}, **{**SLOW_PREFILL, "first_token_engine": None}
    )

    assert decided(blind) == ("not_enough_evidence", "medium")


def test_a_request_that_was_given_up_is_judged_by_where_it_waited():
    """It has no time to first token, so nothing is said of one."""
    gone = told(
        scheduled=None,
        first_token_engine=None,
        first_token_sent=None,
        last_token_sent=None,
        finished=3000,
        outcome="cancelled",
    )
    verdict = judge(gone)

    assert (verdict.cause, verdict.phase) == ("queue", "queue_wait")
    assert verdict.ttft_if_halved is verdict.ttft_if_prefill_halved is None


def test_a_plain_answer_is_judged_as_a_whole():
    """Nobody saw a first token: decode competes with the rest."""
    plain = told(streamed=False, last_token_engine=226, first_token_sent=None, last_token_sent=None)

    assert decided(plain)[0] == "decode"


def test_what_did_not_ask_for_tokens_has_no_verdict():
    """A rejected request, and one that is no generation."""
    assert judge(told(outcome="rejected")) is None
    plain = told()
    object.__setattr__(plain, "operation", None)
    assert judge(plain) is None


def test_the_counterfactuals_are_sums():
    """926 ms, of which 901 queued and 20 computed: the queue halved, the prefill halved."""
    verdict = judge(told(**QUEUED))

    assert verdict.waited == 926 * MS
    assert verdict.ttft_if_halved == (926 - 451) * MS
    assert verdict.ttft_if_prefill_halved == (926 - 10) * MS


def test_a_verdict_says_its_numbers():
    """The reason of each is made of what was measured, and of nothing else."""
    call = {"running": 4, "waiting": 3, "kv_usage": 0.4}
    verdict = judge(told(call=call, **QUEUED), Floors(slots=4))

    assert verdict.reason == (
        "it queued for 902.0 ms, 4 ran in 4 slots, 3 waited, the KV cache was 40% full"
    )
    assert dict(verdict.attributes()) == {
        s.VERDICT: "queue_slots",
        s.VERDICT_CONFIDENCE: "high",
        s.VERDICT_REASON: verdict.reason,
        s.VERDICT_NEXT_CHECK: verdict.next_check,
        s.VERDICT_TTFT_IF_HALVED: 0.475,
        s.VERDICT_TTFT_IF_PREFILL_HALVED: 0.916,
        s.VERDICT_PREFILL_RATIO: None,
        s.VERDICT_DECODE_RATIO: None,
    }


def test_every_cause_is_a_word_of_the_closed_set():
    """And every word has a rule; each list ends with a rule that always holds."""
    lists = [*RULES.values(), APP_PHASE, (EDGE,)]

    assert {rule.cause for rules in lists for rule in rules} == set(s.VERDICTS)
    assert all(rules[-1].holds(None) for rules in lists[:-1])


offsets = st.integers(0, 10_000)


@given(
    moments=st.fixed_dictionaries(
        {name: offsets | st.none() for name in told_moments() if name != "finished"}
    ),
    finished=st.integers(0, 20_000),
    usage=st.builds(Usage, *(st.integers(0, 10**6) | st.none() for _ in range(3)), st.none()),
    call=st.fixed_dictionaries(
        {},
        optional={
            "running": st.integers(0, 300),
            "most_running": st.integers(0, 300),
            "waiting": st.integers(0, 9),
            "kv_usage": st.floats(0, 1),
            "prefill_chunks": st.integers(0, 99),
            "requeued": offsets,
            "stall": st.integers(0, 10**12),
        },
    ),
    outcome=st.sampled_from(s.OUTCOMES),
    known=st.sampled_from([None, Floors(A100, 4, 512, prefix_caching=False)]),
)
def test_any_record_is_judged_within_its_own_numbers(
    moments, finished, usage, call, outcome, known
):
    """Whatever was measured: a word of the set, a cost within the wait, no negative forecast."""
    verdict = judge(
        told(usage=usage, call=call, outcome=outcome, finished=finished, **moments), known
    )

    if verdict is not None:
        assert verdict.cause in s.VERDICTS
        assert verdict.reason
        assert verdict.next_check
        assert verdict.ttft_if_halved is None or 0 <= verdict.ttft_if_halved <= verdict.waited
