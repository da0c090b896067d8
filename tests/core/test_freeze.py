"""From a live request to its one record: the worked examples of the ledger, end to end."""

from collections import Counter
from contextlib import suppress
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_trace import semconv as s
from llm_trace.core import faults
from llm_trace.core import ledger as m
from llm_trace.core.engine_call import MOMENTS, EngineCall
from llm_trace.core.freeze import Answer, freeze
from llm_trace.core.ledger import MAX_CLAIMS
from llm_trace.core.outcome import Ending
from llm_trace.core.record import HttpFacts, IntervalRecord
from llm_trace.core.timeline import MAX_CALLS, Timeline
from llm_trace.core.usage import Usage
from llm_trace.testing import START, FakeClock

OK = MappingProxyType({"status": 200, "complete": True})
EPOCH = 1_700_000_000_000_000_000


class Request:
    """A request told as a story: `at(5)` is 5 ns after its arrival."""

    def __init__(self):
        self.clock = FakeClock()
        self.timeline = Timeline(self.clock.clock, new_span_id=iter(range(101, 9999)).__next__)

    def at(self, ns):
        """Let it be `ns` after the arrival."""
        self.clock.now = START + ns
        return self

    def body(self):
        """The whole request has arrived."""
        self.timeline.body_complete = self.clock.now
        return self

    def admit(self):
        """The app accepts."""
        self.timeline.admit()
        return self

    def interval(self, phase, start, end=None):
        """An interval of the app, left open without an end."""
        self.at(start)
        interval = self.timeline.open_interval(phase, {})
        if end is not None:
            self.at(end)
            self.timeline.close_interval(interval)
        return self

    def call(self, handed_off, returned=None, model="m", **moments):
        """A call of an engine that marks these moments."""
        self.at(handed_off)
        call = EngineCall(self.timeline, "chat", model)
        self.timeline.open_call(call)
        for moment, at in moments.items():
            call.mark(moment, START + at)
        if returned is not None:
            self.at(returned)
            call.end()
        return self

    def tokens(self, first, last):
        """The client's first and last token."""
        self.timeline.first_token_sent = START + first
        self.timeline.last_token_sent = START + last
        return self

    def end(self, finished, *, streamed=True, ending=OK, **facts):
        """The record, the request being over at `finished`."""
        self.at(finished)
        answer = Answer(Ending(**ending), HttpFacts(), streamed=streamed, **facts)
        return freeze(self.timeline, answer, START + finished)


def rows(record):
    """The segments of a record, in ns after the arrival."""
    return [(phase, start - START, end - START) for phase, start, end in record.segments]


ENGINE = MappingProxyType({"queued": 35, "scheduled": 50, "first_token": 100, "last_token": 290})
UNTIL_TOKEN = [
    (s.ADMISSION, 0, 10),
    (s.PREPARE, 10, 30),
    (s.QUEUE_WAIT, 30, 50),
    (s.PREFILL, 50, 100),
]
STREAM = [*UNTIL_TOKEN, (s.FIRST_TOKEN, 100, 110), (s.DECODE, 110, 300), (s.FINISH, 300, 305)]


def test_a_stream_with_everything_known():
    """Every wait has its phase, and both sums are exact."""
    request = Request().at(5).body().at(10).admit().call(30, 302, **ENGINE).tokens(110, 300)

    record = request.end(305, usage=Usage(output_tokens=20))

    phases = {
        s.ADMISSION: 10,
        s.PREPARE: 20,
        s.QUEUE_WAIT: 20,
        s.PREFILL: 50,
        s.FIRST_TOKEN: 10,
    }
    expected = (STREAM, phases, {**phases, s.DECODE: 190, s.FINISH: 5}, 110, 305, 10.0, 0)
    assert expected == (
        rows(record),
        record.ttft_phases,
        record.phases,
        record.ttft,
        record.duration,
        record.time_per_output_token,
        record.moments_dropped,
    )


def test_the_duration_is_ttft_and_the_tokens_after_it_and_the_finish():
    """E2E = TTFT + (n - 1) x TPOT + finish, exactly, with TPOT as the mean."""
    record = (
        Request().call(30, 302, **ENGINE).tokens(110, 300).end(305, usage=Usage(output_tokens=39))
    )

    after_first = (39 - 1) * record.time_per_output_token
    assert record.duration == record.ttft + after_first + record.phases[s.FINISH]


def test_a_plain_answer_has_no_time_to_first_token():
    """Nothing is visible before the whole: the engine's own stamps say where decoding was."""
    record = Request().at(5).body().at(10).admit().call(30, 302, **ENGINE).end(305, streamed=False)

    expected = ([*UNTIL_TOKEN, (s.DECODE, 100, 290), (s.FINISH, 290, 305)], None, {})
    assert expected == (rows(record), record.ttft, record.ttft_phases)


def test_a_stream_whose_tokens_cannot_be_seen_is_a_plain_answer():
    """An encoded stream gives no client-visible stamps, so none are claimed."""
    record = Request().call(30, 302, **ENGINE).end(305, tokens_observable=False)

    expected = (
        [
            (s.ADMISSION, 0, 30),
            (s.QUEUE_WAIT, 30, 50),
            (s.PREFILL, 50, 100),
            (s.DECODE, 100, 290),
            (s.FINISH, 290, 305),
        ],
        False,
        False,
    )
    assert expected == (rows(record), record.streamed, record.tokens_observable)


def test_a_whole_stream_in_which_no_token_shows_is_laid_out_like_a_plain_answer():
    """A model that stops at once says nothing; what its engine did is known all the same."""
    record = Request().at(5).body().at(10).admit().call(30, 302, **ENGINE).end(305)

    expected = ([*UNTIL_TOKEN, (s.DECODE, 100, 290), (s.FINISH, 290, 305)], None, {}, True)
    assert expected == (rows(record), record.ttft, record.ttft_phases, record.streamed)


def test_a_stream_that_is_left_before_a_token_shows_was_waiting_for_it():
    """It ends in the phase that a first token would have ended."""
    request = Request().at(10).admit().call(30, **ENGINE)

    assert rows(request.end(305, ending={"client_gone": True})) == [
        *UNTIL_TOKEN,
        (s.FIRST_TOKEN, 100, 305),
    ]


def test_parallel_retrievals_are_two_intervals_and_one_stretch():
    """The intervals may overlap, the ledger may not."""
    request = Request().at(10).admit()
    one = request.at(12).timeline.open_interval(s.RETRIEVAL, {"data_source": "a"})
    other = request.at(14).timeline.open_interval(s.RETRIEVAL, {"data_source": "b"})
    request.at(20).timeline.close_interval(one)
    request.at(25).timeline.close_interval(other, ValueError())

    record = request.call(30, 302, **ENGINE).tokens(110, 300).end(305)

    segments = [
        (s.ADMISSION, 0, 10),
        (s.PREPARE, 10, 12),
        (s.RETRIEVAL, 12, 25),
        (s.PREPARE, 25, 30),
        *STREAM[2:],
    ]
    intervals = (
        IntervalRecord(s.RETRIEVAL, START + 12, START + 20, 101, 0, {"data_source": "a"}),
        IntervalRecord(
            *(s.RETRIEVAL, START + 14, START + 25, 102, 0, {"data_source": "b"}), "ValueError"
        ),
    )
    expected = (segments, intervals)
    assert expected == (rows(record), record.intervals)


def test_a_retrieval_inside_a_phase_of_the_app():
    """The more specific interval takes the time that both claim."""
    request = Request().at(10).admit().interval("agent", 11).interval(s.RETRIEVAL, 14, 20)
    request.at(29).timeline.close_interval(request.timeline.intervals[0])

    record = request.call(30, 302, **ENGINE).tokens(110, 300).end(305)

    expected = [
        (s.ADMISSION, 0, 10),
        (s.PREPARE, 10, 11),
        ("agent", 11, 14),
        (s.RETRIEVAL, 14, 20),
        ("agent", 20, 29),
        (s.PREPARE, 29, 30),
        *STREAM[2:],
    ]
    assert expected == rows(record)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (Request().at(10).admit().call(30, queued=35), (s.QUEUE_WAIT, 30)),
        (Request().at(10).admit().call(30, queued=35, scheduled=50), (s.PREFILL, 50)),
        (Request().at(10).admit().call(30, **ENGINE).tokens(110, 200), (s.DECODE, 110)),
        (Request().at(10).admit().call(30), (s.ENGINE, 30)),
        (Request().at(10).admit().interval(s.RETRIEVAL, 20), (s.RETRIEVAL, 20)),
        (Request(), (s.ADMISSION, 0)),
    ],
    ids=["queued", "prefill", "decode", "engine", "retrieval", "admission"],
)
def test_a_cancelled_request_dies_in_the_phase_it_was_in(request_, expected):
    """The phase is closed at the cancel, and nothing after it exists."""
    record = request_.end(320, ending={"status": 200, "client_gone": True})

    phase, start = expected
    assert ("cancelled", phase, (phase, start, 320)) == (
        record.outcome,
        record.last_phase,
        rows(record)[-1],
    )
    assert record.duration == sum(record.phases.values())


def test_a_rejection_without_reading_the_body_is_all_admission():
    """Nothing was admitted, however long the refusal took; a phase of the app keeps its name."""
    plain = Request().end(40, ending={"status": 429, "complete": True})
    checked = Request().interval("auth", 10, 30).at(35).body().end(40, ending={**OK, "status": 401})

    expected = [
        ("rejected", "429", [(s.ADMISSION, 0, 40)]),
        ("rejected", "401", [(s.ADMISSION, 0, 10), ("auth", 10, 30), (s.ADMISSION, 30, 40)]),
    ]
    assert expected == [(r.outcome, r.error_type, rows(r)) for r in (plain, checked)]


def test_a_rejection_by_the_engine_was_admitted_by_the_app():
    """A refusal after the hand-off died in the engine: the time before it is no mystery."""
    record = Request().at(10).body().call(30).end(40, ending={"status": 400, "complete": True})

    expected = [(s.ADMISSION, 0, 10), (s.PREPARE, 10, 30), (s.ENGINE, 30, 40)]
    assert expected == rows(record)


def test_query_rewriting_is_a_generation_before_the_answer():
    """The call whose token is visible is the answer; the one that ended before it prepared it."""
    record = (
        Request()
        .at(10)
        .admit()
        .call(12, 22, "small", first_token=15)
        .call(30, 302, **ENGINE)
        .tokens(110, 300)
        .end(305)
    )

    expected = [
        (s.ADMISSION, 0, 10),
        (s.PREPARE, 10, 12),
        (s.GENERATION, 12, 22),
        (s.PREPARE, 22, 30),
        *STREAM[2:],
    ]
    assert expected == rows(record)
    expected = ("m", ["small", "m"])
    assert expected == (record.model, [c.model for c in record.calls])
    assert record.visible is record.calls[1]


def test_a_call_after_the_first_visible_token_explains_nothing_of_it():
    """A follow-up call, such as a title or a moderation, is recorded and not made responsible."""
    record = Request().at(10).admit().tokens(110, 300).call(150, 160).end(305)

    expected = [
        (s.ADMISSION, 0, 10),
        (s.UNATTRIBUTED, 10, 110),
        (s.DECODE, 110, 300),
        (s.FINISH, 300, 305),
    ]
    assert expected == rows(record)
    expected = (1, None)
    assert expected == (len(record.calls), record.visible)


def test_an_engine_without_a_split_has_one_phase():
    """Its time from the hand-off to the first token is `engine`, not a guess."""
    record = Request().at(10).admit().call(30, 302).tokens(110, 300).end(305)

    expected = [
        (s.ADMISSION, 0, 10),
        (s.PREPARE, 10, 30),
        (s.ENGINE, 30, 110),
        (s.DECODE, 110, 300),
        (s.FINISH, 300, 305),
    ]
    assert expected == rows(record)


def test_an_engine_with_a_foreign_clock_is_not_believed():
    """Epoch stamps never meet monotonic ones: they are dropped, counted and subtract nowhere."""
    foreign = {moment: EPOCH + at for moment, at in ENGINE.items()}

    record = (
        Request()
        .at(10)
        .admit()
        .call(30, 302, **foreign)
        .end(305, streamed=False, usage=Usage(output_tokens=9))
    )

    expected = [
        (s.ADMISSION, 0, 10),
        (s.PREPARE, 10, 30),
        (s.ENGINE, 30, 302),
        (s.FINISH, 302, 305),
    ]
    assert (expected, 4, None) == (
        rows(record),
        record.moments_dropped,
        record.time_per_output_token,
    )


def test_the_time_before_the_queue_belongs_to_somebody():
    """Field report 59: arrival 0.0, queued 0.8, scheduled 0.9, first token 1.4."""
    record = (
        Request()
        .at(800)
        .admit()
        .call(800, queued=800, scheduled=900, first_token=1400)
        .tokens(1400, 1400)
        .end(1400)
    )

    expected = (1400, {s.ADMISSION: 800, s.QUEUE_WAIT: 100, s.PREFILL: 500})
    assert expected == (record.ttft, record.ttft_phases)


def test_a_preemption_does_not_move_the_first_scheduling():
    """First QUEUED and SCHEDULED win; waiting again is an attribute of the call."""
    request = Request().at(10).admit().call(30, **ENGINE)
    (call,) = request.timeline.calls
    for moment, at in (("preempted", 150), ("queued", 150), ("scheduled", 190)):
        call.mark(moment, START + at)

    record = request.tokens(110, 300).end(305)

    expected = (STREAM, 1, 40, 0)
    assert expected == (
        rows(record),
        record.visible.preemptions,
        record.visible.requeued,
        record.moments_dropped,
    )


def test_of_parallel_calls_the_one_whose_token_came_first_is_visible():
    """With n > 1 the answer's calls overlap: none prepared it, and their tokens add up."""
    request = Request().at(10).admit()
    request.call(30, first_token=120, last_token=280).call(31, first_token=100, last_token=290)
    for call, tokens in zip(request.timeline.calls, (5, 7), strict=True):
        call.usage(input_tokens=3, output_tokens=tokens)
        request.at(295)
        call.end()

    record = request.end(305, streamed=False)

    expected = [
        (s.ADMISSION, 0, 10),
        (s.PREPARE, 10, 31),
        (s.ENGINE, 31, 100),
        (s.DECODE, 100, 290),
        (s.FINISH, 290, 305),
    ]
    assert (expected, Usage(6, 12)) == (rows(record), record.usage)
    assert record.visible is record.calls[1]


@pytest.mark.parametrize(("said", "expected"), [(Usage(), 100), (Usage(90), 90)])
def test_calls_that_read_one_prompt_read_it_once(said, expected):
    """The first computes it, the other finds it in the cache: for the request it was not cached."""
    request = Request().body().call(30, **ENGINE).call(31, **ENGINE)
    for call, cached in zip(request.timeline.calls, (0, 96), strict=True):
        call.usage(input_tokens=100, cached_tokens=cached, output_tokens=4)
    request.timeline.calls[1].same_prompt = True
    record = request.end(320, streamed=False, usage=said)

    assert (record.usage, record.start_state) == (Usage(expected, 8, 0), "warm")
    assert [call.usage.cached_tokens for call in record.calls] == [0, 96]


def test_more_cached_tokens_than_the_prompt_has_are_of_another():
    """Each beam of a search is a call, and reads the prompt with what was found so far."""
    request = Request().body().call(30, **ENGINE).call(31, **ENGINE)
    for call in request.timeline.calls:
        call.usage(input_tokens=104, cached_tokens=96)
    record = request.end(320, streamed=False, usage=Usage(100, 8))

    assert (record.usage, record.start_state) == (Usage(100, 8), "unknown")


def test_a_plain_answer_ends_with_the_last_of_its_parallel_calls():
    """An engine that stamps nothing is done when its last call has returned."""
    request = Request().at(10).admit().call(30).call(31)
    for call, at in zip(request.timeline.calls, (200, 250), strict=True):
        request.at(at)
        call.end()

    record = request.end(305, streamed=False)

    expected = [
        (s.ADMISSION, 0, 10),
        (s.PREPARE, 10, 30),
        (s.ENGINE, 30, 250),
        (s.FINISH, 250, 305),
    ]
    assert expected == rows(record)


@pytest.mark.parametrize(
    ("sign", "admission"),
    [
        (Request().at(7).body().at(9).admit(), 9),
        (Request().at(7).body().call(20), 7),
        (Request().interval("rerank", 6, 8).at(9).body(), 6),
        (Request().call(8).at(9).body(), 8),
    ],
    ids=["the-apps-word", "the-body", "a-phase", "the-hand-off"],
)
def test_a_request_is_admitted_when_the_app_says_so_or_at_the_first_sign(sign, admission):
    """Without a word, the first phase, hand-off or whole body shows that it was accepted."""
    record = sign.tokens(110, 300).end(305)

    expected = (s.ADMISSION, 0, admission)
    assert expected == rows(record)[0]


@pytest.mark.parametrize(
    ("usage", "cold", "phase", "expected"),
    [
        (Usage(), False, "rerank", "unknown"),
        (Usage(input_tokens=10), False, "rerank", "unknown"),
        (Usage(cached_tokens=8), False, "rerank", "unknown"),
        (Usage(input_tokens=0, cached_tokens=0), False, "rerank", "unknown"),
        (Usage(input_tokens=10, cached_tokens=0), False, "rerank", "warm"),
        (Usage(input_tokens=10, cached_tokens=7), False, "rerank", "partial"),
        (Usage(input_tokens=10, cached_tokens=8), False, "rerank", "cached"),
        (Usage(input_tokens=10, cached_tokens=8), True, "rerank", "cold"),
        (Usage(input_tokens=10, cached_tokens=8), False, s.MODEL_LOAD, "cold"),
    ],
)
def test_the_start_state_follows_from_the_cache_and_the_loads(usage, cold, phase, expected):
    """A load beats the cache, a share decides between partial and cached, no word is unknown."""
    request = Request().interval(phase, 5, 9).call(30, 302)
    request.timeline.calls[0].cold = cold

    record = request.end(305, usage=usage)

    assert expected == record.start_state
    assert record.start_state in s.START_STATES


def test_what_is_open_at_the_end_is_closed_by_it():
    """An interval still open ends with its request; one begun after the end has no length."""
    request = Request().interval("rerank", 10).interval("late", 50)

    record = request.end(40)

    expected = (
        IntervalRecord("rerank", START + 10, START + 40, 101, 0, {}),
        IntervalRecord("late", START + 40, START + 40, 102, 0, {}),
    )
    assert expected == record.intervals


def test_a_record_does_not_change_after_the_end():
    """Work that outlives its request cannot touch what observers already have."""
    request = Request()
    attributes = {"k": 1}
    request.timeline.open_interval("rerank", attributes)
    request.timeline.annotate({"tier": "gold"})

    record = request.end(40)
    attributes["late"] = 2
    request.timeline.annotate({"late": 2})

    expected = ({"k": 1}, {"tier": "gold"})
    assert expected == (record.intervals[0].attributes, record.attributes)


def test_an_app_that_loops_loses_generations_before_its_own_phases(monkeypatch):
    """Past the bound earlier calls go unweighed, are counted, and stay in the record."""
    monkeypatch.setattr(faults, "dropped", Counter())
    request = Request().at(10).admit().interval(s.RETRIEVAL, 12, 15)
    for turn in range(MAX_CALLS - 1):
        request.call(20 + 2 * turn, 21 + 2 * turn)
    request.call(1000)

    record = request.tokens(1100, 1200).end(1300)

    weighed = MAX_CLAIMS - 1
    expected = (3, weighed, MAX_CALLS)
    assert expected == (
        record.phases[s.RETRIEVAL],
        record.phases[s.GENERATION],
        len(record.calls),
    )
    assert Counter(claims=MAX_CALLS - 1 - weighed) == faults.dropped


def batch(size, ended, operation="text_completion"):
    """So many calls of this server's engine, handed off at once; the first ones have ended."""
    request = Request().at(10).admit()
    calls = [EngineCall(request.timeline, operation, "m", source="engine") for _ in range(size)]
    for at, call in enumerate(calls, 20):
        request.at(at)
        call.begin()
        request.timeline.adopt_call(call)
        call.mark("scheduled", START + 200)
        call.usage(input_tokens=2)
    for at, call in enumerate(calls[:ended], 300):
        request.at(at)
        call.mark("first_token")
        call.end()
        request.timeline.ended(call)
    return request


def test_prompts_past_the_bound_are_the_engines_work_too(monkeypatch):
    """They are not kept, yet the answer waits for them, and they were read."""
    monkeypatch.setattr(faults, "dropped", Counter())
    size = MAX_CALLS + 9
    record = batch(size, size).end(500, streamed=False)

    last = 300 + size - 1
    assert rows(record)[-2:] == [(s.DECODE, 300, last), (s.FINISH, last, 500)]
    assert (len(record.calls), record.usage) == (MAX_CALLS, Usage(2 * size))
    assert Counter(calls=9) == faults.dropped


def test_prompts_past_the_bound_are_waited_for(monkeypatch):
    """All that are kept are done, and the client leaves before the others are."""
    monkeypatch.setattr(faults, "dropped", Counter())
    request = batch(MAX_CALLS + 9, MAX_CALLS + 2)

    assert request.timeline.live_phase() == "first_token"
    record = request.end(500, streamed=False, ending={"client_gone": True})
    assert rows(record)[-1] == (s.DECODE, 300, 500)


@pytest.mark.parametrize(
    ("size", "ended", "ending", "expected"),
    [
        (3, 3, OK, [(s.PREFILL, 200, 302), (s.FINISH, 302, 500)]),
        (3, 1, {"client_gone": True}, [(s.PREFILL, 200, 500)]),
        (MAX_CALLS + 9, MAX_CALLS + 9, OK, [(s.PREFILL, 200, 436), (s.FINISH, 436, 500)]),
    ],
)
def test_embeddings_are_computed_to_the_last_of_them(size, ended, ending, expected):
    """They have no decode: what comes after the first result is the others' computation."""
    request = batch(size, ended, s.EMBEDDINGS)

    assert request.timeline.live_phase() in {s.PREFILL, s.UNATTRIBUTED}
    assert rows(request.end(500, streamed=False, ending=ending))[-len(expected) :] == expected


def test_a_batch_is_handed_over_while_its_first_prompts_are_done():
    """They did not prepare the answer, they are part of it; an earlier turn did."""
    request = Request().at(10).admit()
    for handed_off, first, returned in ((20, 25, 30), (40, 50, 60), (45, 70, 80), (65, 75, 90)):
        call = EngineCall(request.timeline, "text_completion", "m", source="engine")
        call.handed_off, call.first_token = START + handed_off, START + first
        call.last_token = call.returned = START + returned
        call.tokens = Usage(1, 1)
        request.timeline.adopt_call(call)

    record = request.end(100, streamed=False)

    expected = [
        (s.ADMISSION, 0, 10),
        (s.PREPARE, 10, 20),
        (s.GENERATION, 20, 30),
        (s.PREPARE, 30, 40),
        (s.ENGINE, 40, 50),
        (s.DECODE, 50, 90),
        (s.FINISH, 90, 100),
    ]
    assert (rows(record), record.usage) == (expected, Usage(3, 3))


@pytest.mark.parametrize(("source", "outcome"), [("engine", "error"), ("upstream", "ok")])
def test_an_answer_that_its_engine_gave_up_is_no_success(source, outcome):
    """Whatever word its dialect has for that; a call to another engine the app may have retried."""
    request = Request().body().call(30, 302, **ENGINE)
    (call,) = request.timeline.calls
    call.source, call.finish_reason = source, "abort"

    response = {s.RESPONSE_FINISH_REASONS: ("completed",)}
    assert request.end(305, streamed=False, response=response).outcome == outcome


def test_a_call_whose_hand_off_nobody_saw_claims_no_time():
    """An adopted call without a hand-off cannot take the admission for a generation."""
    request = Request().at(10).admit()
    earlier = EngineCall(request.timeline, "chat", "m")
    request.timeline.adopt_call(earlier)
    request.at(20)
    earlier.end()

    record = request.call(30, 302, **ENGINE).tokens(110, 300).end(305)

    expected = STREAM
    assert expected == rows(record)


@pytest.mark.parametrize(
    ("asked", "called", "own_span", "expected"),
    [
        ("asked", "called", True, "called"),
        ("asked", "called", False, "asked"),
        (None, "called", False, "called"),
        ("asked", "", True, "asked"),
        (None, "", True, None),
    ],
)
def test_the_model_is_the_one_that_was_called(asked, called, own_span, expected):
    """The app knows which model it calls; of this server's engine the client's name is kept."""
    request = Request().call(30, 302, called)
    request.timeline.calls[0].span_id *= own_span

    record = request.end(305, model=asked)

    assert expected == record.model


def test_a_request_is_frozen_once():
    """A second end makes no second record."""
    request = Request()

    records = [request.end(40), request.end(50)]

    expected = [40, None]
    assert expected == [record and record.duration for record in records]


# --- any story at all -------------------------------------------------------------------------

steps = st.tuples(
    st.integers(0, 9),
    st.sampled_from(
        ["admit", "body", "open", "close", "call", "adopt", "mark", "end_call", "token", "usage"]
    ),
    st.integers(0, 7),
    st.sampled_from([s.RETRIEVAL, s.MODEL_LOAD, "rerank", "agent"]),
    st.sampled_from(MOMENTS),
    st.sampled_from([None, None, START, START + 20, EPOCH, 0, -1.0, float("nan"), 5.5]),
)
endings = st.builds(
    dict,
    status=st.sampled_from([0, 200, 400, 429, 500, 503, 504]),
    complete=st.booleans(),
    client_gone=st.booleans(),
    exception=st.sampled_from([None, ValueError(), TimeoutError(), GeneratorExit()]),
    stream_error=st.sampled_from([None, "server_error", "timeout"]),
    unterminated=st.booleans(),
)


def tell(request, story):
    """Let all of `story` happen; what refers to something that is not there is left out."""
    timeline = request.timeline
    for ns, step, which, phase, moment, at in story:
        request.clock.advance(ns)
        with suppress(IndexError):
            {
                "admit": timeline.admit,
                "body": request.body,
                "open": lambda phase=phase: timeline.open_interval(phase, {}),
                "close": lambda n=which: timeline.close_interval(timeline.intervals[n]),
                "call": lambda: timeline.open_call(EngineCall(timeline, "chat", "m")),
                "adopt": lambda: timeline.adopt_call(EngineCall(timeline, "", "")),
                "mark": lambda n=which, x=moment, at=at: timeline.calls[n].mark(x, at),
                "end_call": lambda n=which: timeline.calls[n].end(),
                "usage": lambda n=which: timeline.calls[n].usage(output_tokens=n),
                "token": lambda: see_token(request),
            }[step]()


def see_token(request):
    """A token leaves for the client."""
    timeline = request.timeline
    timeline.first_token_sent = timeline.first_token_sent or request.clock.now
    timeline.last_token_sent = request.clock.now


@given(
    story=st.lists(steps, max_size=30),
    after=st.lists(steps, max_size=5),
    ending=endings,
    streamed=st.booleans(),
    delay=st.integers(-20, 20),
)
def test_any_story_gives_exactly_one_record_that_adds_up(story, after, ending, streamed, delay):
    """Whatever happened before and after the end: one record, exact sums, known words."""
    request = Request()
    tell(request, story)
    finished = request.clock.now - START + delay

    record = request.end(finished, streamed=streamed, ending=ending)
    seen = (record.intervals, record.calls, record.segments, dict(record.attributes))
    tell(request, after)

    assert request.end(finished + 50) is None
    assert seen == (record.intervals, record.calls, record.segments, record.attributes)
    assert max(0, finished) == record.duration == sum(record.phases.values())
    assert (record.ttft or 0) == sum(record.ttft_phases.values())
    assert set(record.phases) <= {*s.PHASES, "rerank", "agent"}
    assert record.outcome in s.OUTCOMES
    assert record.start_state in s.START_STATES
    assert record.last_phase in {*record.phases, s.ADMISSION}
    assert all(START <= i.start <= i.end <= record.finished for i in record.intervals)
    assert record.time_per_output_token is None or record.time_per_output_token >= 0
    assert record.moments_dropped <= len(m.TRUST)


def test_a_plain_answer_that_is_cut_short_was_still_decoding():
    """The engine's latest token is no last one while the engine goes on."""
    request = Request().body().call(30, **ENGINE)
    record = request.end(320, streamed=False, ending={"client_gone": True})

    assert rows(record)[-1] == (s.DECODE, 100, 320)
    assert record.last_phase == "decode"


def test_what_the_engines_reports_show_stands_in_for_its_stamps():
    """Seen in the queue, then computing; cancelled there: an inferred split, and marked as one."""
    request = Request().body().call(30)
    (call,) = request.timeline.calls
    call.seen_waiting, call.seen_scheduled = START + 40, START + 60
    record = request.end(90, ending={"client_gone": True})

    assert rows(record)[-2:] == [(s.QUEUE_WAIT, 30, 60), (s.PREFILL, 60, 90)]
    assert record.visible.inferred is True
    assert (record.visible.queued, record.visible.scheduled) == (START + 40, START + 60)


def test_what_was_computed_for_nobody():
    """All prompt tokens that any call computed; nothing where a token reached the client."""
    request = Request().body().call(30, **ENGINE).call(31, **ENGINE)
    for call in request.timeline.calls:
        call.usage(input_tokens=100, cached_tokens=32)
    record = request.end(320, ending={"stream_error": "boom"})

    assert record.wasted_tokens == 136
    assert Request().body().call(30).end(320, ending={"client_gone": True}).wasted_tokens is None
