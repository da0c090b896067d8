"""The teller: what a scheduler does before a request's first output, told once and in time."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scheduler_doubles import LOADING, CoreOutput, CoreOutputs, Request, Scheduler

from llm_trace_vllm import news
from llm_trace_vllm.news import CARRIER, Computed, News, Stamps, Transfer
from llm_trace_vllm.scheduling import telling
from llm_trace_vllm.teller import HOLD, Teller


class Engine:
    """EngineCore: a scheduler with a teller, on a clock of whole steps."""

    def __init__(self, **more):
        self.at = 100.0
        self.teller = Teller(self._carry, self._envelope, self._clock, loading=LOADING)
        self.scheduler = telling(Scheduler, self.teller)(clock=self._clock, **more)

    def _clock(self):
        return self.at

    @staticmethod
    def _carry(headers):
        return CoreOutput(CARRIER, [], headers)

    def _envelope(self, outputs):
        return CoreOutputs(outputs, self.at)

    def add(self, *requests):
        """Queue requests, one a second."""
        for request in requests:
            self.scheduler.add_request(request)
            self.at += 1.0

    def step(self, takes=1.0):
        """One step; what it says to each API server."""
        return self.finish(self.scheduler.schedule(), takes)

    def finish(self, decided, takes=1.0):
        """The end of a step that was decided before."""
        self.at += takes
        return self.scheduler.update_from_output(decided, 7)

    def remote(self, key):
        """Queue a request whose KV cache is elsewhere."""
        self.scheduler.connector = object()
        self.scheduler.remote.add(key)
        self.add(Request(key, num_prompt_tokens=4))

    def here(self, key):
        """A step at whose end that KV cache is here."""
        decided = self.scheduler.schedule()
        self.scheduler.finished_recving_kv_req_ids.add(key)
        return self.finish(decided)

    def busy(self):
        """Let another request decode, so that every step has an output."""
        self.scheduler.add_request(Request("busy", num_prompt_tokens=1))
        self.step(0.0)
        return self

    def kept(self):
        """How much the teller holds of requests and steps."""
        mine = self.teller
        every = (*mine._kept, mine._steps)
        return sum(map(len, every))


def told(outputs, client=0):
    """The news for one API server; None where there is none."""
    every = outputs[client].outputs if client in outputs else []
    carriers = [output for output in every if output.request_id == CARRIER]
    assert len(carriers) <= 1
    return news.read(carriers[0]) if carriers else None


def test_chunks_are_told_as_they_are_computed():
    """Each with its tokens, from its step's schedule to its outputs; the stamps with the first.

    The news comes before the request's own output, so all chunks are known at its first token.
    """
    engine = Engine().busy()
    engine.add(Request("a", num_prompt_tokens=10))
    first, second, third = engine.step(), engine.step(), engine.step()

    assert told(first) == News([Stamps("a", 100.0, 101.0)], [Computed("a", 4, 101.0, 102.0)], [])
    assert told(second) == News([], [Computed("a", 4, 102.0, 103.0)], [])
    assert told(third) == News([], [Computed("a", 2, 103.0, 104.0)], [])
    assert [output.request_id for output in third[0].outputs] == [CARRIER, "busy", "a"]


def test_a_prompt_of_one_chunk_needs_no_stamps():
    """vLLM tells them with the output of the same step; the chunk is told all the same."""
    engine = Engine()
    engine.add(Request("a", num_prompt_tokens=3))

    assert told(engine.step()) == News([], [Computed("a", 3, 101.0, 102.0)], [])
    assert engine.step()[0].outputs == [CoreOutput("a", [7])]
    assert engine.kept() == 0


def test_a_cached_prefix_is_no_chunk():
    """Only computed tokens count, whatever the cache gave before."""
    engine = Engine()
    engine.add(Request("a", num_prompt_tokens=10, num_cached_tokens=8))

    assert told(engine.step()).chunks == [Computed("a", 2, 101.0, 102.0)]


def test_steps_ahead_are_no_chunks():
    """An asynchronous scheduler decides a decode step before the prompt's outputs are there."""
    engine = Engine()
    engine.add(Request("a", num_prompt_tokens=4))
    prefill = engine.scheduler.schedule()
    engine.at += 1.0
    decode = engine.scheduler.schedule()

    assert told(engine.finish(prefill)).chunks == [Computed("a", 4, 101.0, 103.0)]
    assert told(engine.finish(decode)) is None


def test_a_step_that_fails_is_forgotten():
    """A step whose outputs never come does not shift those of the next."""
    engine = Engine().busy()
    engine.add(Request("a", num_prompt_tokens=8))
    engine.scheduler.schedule()
    engine.at += 5.0

    assert told(engine.step()).chunks == [Computed("a", 4, 106.0, 107.0)]


def test_a_preempted_prompt_is_computed_again():
    """What was computed twice is told twice."""
    engine = Engine().busy()
    request = Request("a", num_prompt_tokens=8)
    engine.add(request)
    engine.step()
    request.num_computed_tokens = 0
    steps = [engine.step(), engine.step()]

    assert [told(step).chunks[0].start for step in steps] == [102.0, 103.0]


def test_a_waiting_request_is_told_once_beside_the_outputs_of_others():
    """Queued with no slot: its stamp comes with the next step, its schedule with a later one."""
    engine = Engine(slots=1)
    engine.add(Request("a", num_prompt_tokens=1))
    engine.step()
    engine.add(Request("b", num_prompt_tokens=8))

    assert told(engine.step()).stamps == [Stamps("b", 102.0, 0.0)]
    assert told(engine.step()) is None
    engine.scheduler.slots = 2
    assert told(engine.step()).stamps == [Stamps("b", 102.0, 105.0)]


def test_news_waits_for_outputs_of_its_own_server():
    """A message of its own would be one more engine step in vLLM's statistics."""
    engine = Engine()
    engine.add(Request("a", num_prompt_tokens=1), Request("b", 12, client_index=1))
    quick = HOLD / 4

    first, second = engine.step(quick), engine.step(quick)
    assert first.keys() == second.keys() == {0}
    third = engine.step(quick)
    assert told(third, 1).stamps == [Stamps("b", 101.0, 102.0)]
    assert [chunk.tokens for chunk in told(third, 1).chunks] == [4, 4, 4]


def test_news_that_waited_long_enough_travels_alone():
    """Where nothing but prompts is computed, their clients may leave before any output comes."""
    engine = Engine()
    engine.add(Request("a", num_prompt_tokens=1000))
    early, late = engine.step(HOLD / 2), engine.step(HOLD)

    assert early == {}
    assert [output.request_id for output in late[0].outputs] == [CARRIER]
    assert len(told(late).chunks) == 2


def test_news_fills_a_message_without_outputs():
    """vLLM may send its own statistics in a step that has no outputs."""
    engine = Engine()
    engine.add(Request("a", num_prompt_tokens=100))
    engine.step()
    decided = engine.scheduler.schedule()
    engine.at += 1.0
    outputs = {0: CoreOutputs([], engine.at)}
    engine.teller.updated(decided, outputs)

    assert [chunk.start for chunk in told(outputs).chunks] == [101.0, 102.0]


@pytest.mark.parametrize("steps", [0, 1], ids=["queued", "in prefill"])
def test_an_aborted_request_is_forgotten(steps):
    """vLLM names it in the next schedule."""
    engine = Engine()
    engine.add(Request("a", num_prompt_tokens=100), Request("b", num_prompt_tokens=100))
    for _ in range(steps):
        engine.step()
    engine.scheduler.abort("a")
    engine.scheduler.abort("b")
    engine.step()

    assert engine.kept() <= steps  # a step of theirs whose outputs are still to come
    engine.add(Request("c", num_prompt_tokens=1))
    engine.step()
    assert engine.kept() == 0


def test_without_statistics_the_stamps_are_its_own():
    """vLLM notes no events then, and tells none with an output: when it was queued and begun."""
    engine = Engine(log_stats=False, slots=2).busy()
    engine.add(Request("a", num_prompt_tokens=8), Request("b", num_prompt_tokens=1))

    assert told(engine.step()) == News(
        [Stamps("a", 100.0, 102.0), Stamps("b", 101.0, 0.0)],
        [Computed("a", 4, 102.0, 103.0)],
        [],
    )
    engine.scheduler.slots = 3
    assert told(engine.step()).stamps == [Stamps("b", 101.0, 103.0)]
    assert told(engine.step()) is None
    assert engine.kept() == 0


def test_a_transfer_is_told_when_it_begins_and_when_it_is_over():
    """From the schedule that decided to wait for it to the step that said that it is here."""
    engine = Engine().busy()
    engine.remote("a")
    first, second, third, fourth = engine.step(), engine.step(), engine.here("a"), engine.step()

    assert told(first) == News([Stamps("a", 100.0, 0.0)], [], [Transfer("a", 101.0, 0.0)])
    assert told(second) is None
    assert told(third).transfers == [Transfer("a", 101.0, 104.0)]
    assert told(fourth) == News([], [Computed("a", 4, 104.0, 105.0)], [])
    assert engine.kept() == 0


def test_the_wait_for_room_after_a_transfer_is_none():
    """vLLM leaves the status as it is until there is room; the transfer is over before."""
    engine = Engine(slots=2).busy()
    engine.remote("a")
    engine.step()
    engine.here("a")
    engine.scheduler.slots = 1
    later = [engine.step(), engine.step()]
    engine.scheduler.slots = 2

    assert [told(step) for step in later] == [None, None]
    assert told(engine.step()) == News([], [Computed("a", 4, 105.0, 106.0)], [])


def test_a_transfer_of_which_nobody_says_that_it_is_here_ends_with_its_status():
    """A scheduler may keep what arrived under another name: then its next schedule says it."""
    engine = Engine().busy()
    engine.remote("a")
    engine.step()
    engine.scheduler.remote.clear()

    assert told(engine.step()).transfers == [Transfer("a", 101.0, 102.0)]
    assert engine.kept() == 0


def test_a_second_transfer_is_another_one():
    """vLLM may ask again after one that failed."""
    engine = Engine().busy()
    engine.remote("a")
    engine.step()
    request = engine.scheduler.requests["a"]
    engine.here("a")
    engine.scheduler.slots, request.status = 1, "WAITING"
    engine.step()
    engine.scheduler.slots = 2
    engine.scheduler.finished_recving_kv_req_ids.clear()

    assert told(engine.step()).transfers == [Transfer("a", 104.0, 0.0)]


def test_a_transfer_for_nobody_is_forgotten():
    """Its client left: nobody hears how it ended."""
    engine = Engine().busy()
    engine.remote("a")
    engine.step()
    engine.scheduler.abort("a")

    assert told(engine.step()) is None
    assert engine.kept() == 0


@pytest.mark.parametrize("lost", ["connector", "status"])
def test_without_a_connector_or_a_status_there_are_no_transfers(lost):
    """The rest is told all the same."""
    engine = Engine().busy()
    engine.remote("a")
    if lost == "connector":
        del engine.scheduler.connector
    else:
        engine.teller._status = None
    engine.step()

    assert told(engine.here("a")) is None
    assert told(engine.step()) == News([], [Computed("a", 4, 103.0, 104.0)], [])


def test_steps_in_flight_are_bounded():
    """An engine whose outputs never come holds a bounded number of its steps."""
    engine = Engine()
    engine.add(Request("a", num_prompt_tokens=10_000))
    for _ in range(200):
        engine.scheduler.schedule()

    assert len(engine.teller._steps) == 64


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 20), st.integers(0, 2)),
        st.tuples(st.just("step"), st.sampled_from([0.01, 0.2, 1.0])),
        st.tuples(st.just("abort"), st.integers(0, 5)),
        st.tuples(st.just("preempt"), st.integers(0, 5)),
    ),
    max_size=60,
)


class Watched(Engine):
    """An engine whose every chunk and every piece of news is noted."""

    def __init__(self, **more):
        super().__init__(slots=3, **more)
        self.computed, self.heard, self.stamps = [], [], Counter()

    def run(self, takes):
        """One step."""
        decided = self.scheduler.schedule()
        for key, tokens in decided.num_scheduled_tokens.items():
            request = self.scheduler.requests[key]
            before = request.num_computed_tokens - tokens
            if request.num_output_tokens == 0 and before < request.num_prompt_tokens:
                self.computed.append((key, min(tokens, request.num_prompt_tokens - before)))
        outputs = self.finish(decided, takes)
        for client in outputs:
            found = told(outputs, client) or News([], [], [])
            self.heard += [(chunk.request_id, chunk.tokens) for chunk in found.chunks]
            self.stamps.update(stamps.request_id for stamps in found.stamps)

    def pick(self, number):
        """One of the living requests."""
        living = list(self.scheduler.requests.values())
        return living[number % len(living)] if living else None


@given(MOVES, st.booleans())
def test_every_chunk_is_told_once_whatever_happens(moves, log_stats):
    """Each computed part of a prompt, in order; at most two sets of stamps a request."""
    engine = Watched(log_stats=log_stats)
    for number, (move, *values) in enumerate(moves):
        request = engine.pick(values[0]) if move in ("abort", "preempt") else None
        if move == "add":
            engine.add(Request(f"r{number}", values[0], client_index=values[1]))
        elif move == "step":
            engine.run(values[0])
        elif request is not None and move == "abort":
            engine.scheduler.abort(request.request_id)
        elif request is not None and request.num_output_tokens == 0:
            request.num_computed_tokens = 0
    while engine.scheduler.requests:
        engine.scheduler.abort(engine.pick(0).request_id)
    for _ in range(2):
        engine.run(1.0)

    assert sorted(engine.heard) == sorted(engine.computed)
    assert all(number <= 2 for number in engine.stamps.values())
    assert engine.kept() == 0
