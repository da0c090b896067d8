"""The lower tiers: moments of live states or finished durations, joined by the handler's id."""

from types import SimpleNamespace

import pytest
from vllm_doubles import SECOND, Http, seconds

from llm_trace import semconv as s
from llm_trace_vllm import fallback
from llm_trace_vllm.tiers import FINISHED_STATS, STATS_SWEEP


def waiting(request_id, **more):
    """A live HTTP request whose handler gave the engine this id."""
    return Http(request_metadata=SimpleNamespace(request_id=request_id), **more)


def state(request_id, *, external=None, **stamps):
    """A live request state of vLLM's."""
    stats = SimpleNamespace(**{f"{name}_ts": value for name, value in stamps.items()})
    return SimpleNamespace(request_id=request_id, external_req_id=external, stats=stats)


def sweep(*states):
    """One sweep over these states."""
    fallback.sweep(SimpleNamespace(request_states={one.request_id: one for one in states}))


def test_a_sweep_copies_stamps_as_they_come():
    """Step by step the same call learns more; what is 0 yet is missing."""
    http = waiting("chatcmpl-a")
    at = http.fake.now
    known = {"queued": seconds(at + 1_000), "scheduled": seconds(at + 2_000)}
    one = "chatcmpl-a-0badcafe"
    sweep(state(one, external="chatcmpl-a", **known, first_token=0.0, last_token=0.0))
    call = http.call
    assert (call.queued, call.scheduled, call.first_token) == (at + 1_000, at + 2_000, 0)

    tokens = {"first_token": seconds(at + 5_000), "last_token": seconds(at + 9_000)}
    sweep(state(one, external="chatcmpl-a", **known, **tokens))
    assert http.call is call
    assert (call.first_token, call.last_token) == (at + 5_000, at + 9_000)
    assert call.attributes == {s.ENGINE_TIER: STATS_SWEEP, s.ENGINE_REQUEST_ID: one}


@pytest.mark.parametrize(
    ("handlers", "engines"),
    [
        ("chatcmpl-a", "chatcmpl-a"),
        ("cmpl-a", "cmpl-a-0"),
        ("cmpl-a-b", "cmpl-a-b-12"),
    ],
)
def test_ids_of_both_routes_meet(handlers, engines):
    """Completions add the index of the prompt to the handler's id."""
    http = waiting(handlers)
    sweep(state("internal", external=engines, queued=seconds(http.fake.now)))

    assert http.call.queued == http.fake.now


def test_prompts_of_one_request_are_calls_of_one():
    """Each state keeps its own call, sweep after sweep."""
    http = waiting("cmpl-a")
    at = http.fake.now
    prompts = [
        state(f"cmpl-a-{n}-0badcafe", external=f"cmpl-a-{n}", queued=seconds(at + n))
        for n in (1, 2)
    ]
    sweep(*prompts)
    sweep(*prompts)

    assert [call.queued for call in http.timeline.calls] == [at + 1, at + 2]


def test_versions_without_an_external_id():
    """Before 0.17 the engine's id is the handler's."""
    http = waiting("chatcmpl-a")
    one = state("chatcmpl-a", queued=seconds(http.fake.now))
    del one.external_req_id
    sweep(one)

    assert http.call.queued == http.fake.now


def test_a_sweep_leaves_strangers_and_silent_states_alone():
    """A state of nobody, one without statistics, and HTTP requests without an id."""
    known, nameless, bare = waiting("chatcmpl-a"), waiting(None), Http()
    silent = SimpleNamespace(request_id="internal", external_req_id="chatcmpl-a", stats=None)
    sweep(silent, state("other", external="chatcmpl-b", queued=1.0))

    assert [http.timeline.calls for http in (known, nameless, bare)] == [[], [], []]


def stats(request_id, **more):
    """The statistics of a finished request."""
    durations = {"queued_time": 0.5, "prefill_time": 0.25, "decode_time": 1.0}
    counts = {"num_prompt_tokens": 9, "num_cached_tokens": 4, "num_generation_tokens": 3}
    return SimpleNamespace(request_id=request_id, **{**durations, **counts, **more})


def test_finished_durations_are_placed_back_from_now():
    """Last token now, and from there back: decode, prefill, queue."""
    http = waiting("chatcmpl-a")
    now = http.fake.now + 10 * SECOND
    fallback.finished([stats("chatcmpl-a")], now)

    call = http.call
    assert call.last_token == now
    assert call.first_token == now - SECOND
    assert call.scheduled == now - SECOND - SECOND // 4
    assert call.queued == now - SECOND - 3 * SECOND // 4
    assert call.usage_now()[:3] == (9, 3, 4)
    assert call.attributes[s.ENGINE_TIER] == FINISHED_STATS


def test_only_the_first_of_several_children_is_placed():
    """They share an id, so nobody can tell them apart."""
    http = waiting("cmpl-a")
    fallback.finished([stats("cmpl-a-0"), stats("cmpl-a-1")], http.fake.now + 10 * SECOND)

    assert http.call.attributes[s.ENGINE_REQUEST_ID] == "cmpl-a-0"


def test_finished_strangers_are_left_alone():
    """Ids of nobody, and versions before 0.24, which give none."""
    http = waiting("chatcmpl-a")
    fallback.finished([stats("chatcmpl-b"), stats(None), SimpleNamespace()], http.fake.now)

    assert http.timeline.calls == []
