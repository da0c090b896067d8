"""Who waits and who computes, as far as the scheduler's counts tell: certain, or not said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_trace.core.engine_call import EngineCall
from llm_trace.core.timeline import Timeline
from llm_trace.testing import FakeClock
from llm_trace_vllm import waiting as waiting_module
from llm_trace_vllm.waiting import Counts, Departures, Waiting

STEP = 1_000


class Queue:
    """Requests a, b, c ..., handed off 10 ns apart, and an engine that reports after each step."""

    def __init__(self, names="", *, in_order=True):
        self.fake = FakeClock()
        self.waiting = Waiting(in_order=in_order)
        self.calls = {}
        self.alive = set()
        self.before = self.fake.now
        for name in names:
            self.hand_off(name)

    def hand_off(self, name):
        """One more request."""
        self.fake.advance(10)
        call = EngineCall(Timeline(self.fake.clock), "", "", source="engine")
        call.begin()
        self.calls[name] = call
        self.alive.add(name)
        self.waiting.add(name, call, self.alive)

    def abort(self, name):
        """Its client left."""
        self.alive.discard(name)
        self.calls[name].timeline.closed = True

    def step(self, running, waiting, *, deferred=0, emitted=0):
        """A step is over."""
        self.fake.advance(STEP)
        counts = Counts(running, waiting, deferred, emitted)
        self.waiting.observe(counts, self.alive, before=self.before, at=self.fake.now)
        self.before = self.fake.now

    def said(self):
        """What is said of each request: `p`refill, `q`ueue or `?`."""
        return "".join(_said(call) for call in self.calls.values())


def _said(call):
    if call.seen_scheduled:
        return "p"
    return "q" if call.seen_waiting else "?"


def test_before_the_next_step_nothing_is_known():
    """The engine has not spoken since the hand-off."""
    assert Queue("ab").said() == "??"


def test_the_oldest_compute_and_the_others_wait():
    """Two run without a token, two wait: first come, first served."""
    queue = Queue("abcd")
    queue.step(running=2, waiting=2)

    assert queue.said() == "ppqq"
    assert queue.calls["a"].stamps() == (0, queue.calls["a"].handed_off, True)
    assert queue.calls["c"].stamps() == (queue.fake.now, 0, True)


def test_those_with_tokens_are_not_among_them():
    """Three run and three had tokens in this step: the others all wait."""
    queue = Queue("ab")
    queue.step(running=3, waiting=2, emitted=3)

    assert queue.said() == "qq"


def test_a_request_is_scheduled_when_the_step_began():
    """After it had waited: at the end of the step before."""
    queue = Queue("ab")
    queue.step(running=1, waiting=1, emitted=1)
    first = queue.fake.now
    queue.step(running=1, waiting=1)

    assert queue.said() == "pq"
    assert queue.calls["a"].stamps() == (first, first, True)


def test_one_handed_off_during_the_step_is_left_open():
    """The step says nothing of it; the next one does."""
    queue = Queue("a")
    queue.step(running=1, waiting=0, emitted=1)
    queue.hand_off("b")
    queue.waiting.observe(
        Counts(1, 0, 0, 1), queue.alive, before=queue.before, at=queue.calls["b"].handed_off
    )
    assert queue.said() == "q?"

    queue.step(running=1, waiting=2, emitted=1)
    assert queue.said() == "qq"


def test_an_aborted_request_makes_room():
    """The oldest left: the next one is the oldest."""
    queue = Queue("abc")
    queue.step(running=1, waiting=2, emitted=1)
    queue.abort("a")
    queue.step(running=1, waiting=1)

    assert queue.said() == "qpq"


def test_first_outputs_leave():
    """Whoever has tokens is no longer among those without."""
    queue = Queue("ab")
    assert queue.waiting.leave("a") is True
    assert queue.waiting.leave("a") is False
    queue.step(running=2, waiting=0, emitted=1)

    assert queue.said()[1] == "p"


@pytest.mark.parametrize(("deferred", "in_order"), [(1, True), (0, False)])
def test_where_some_may_be_overtaken_nobody_is_named(deferred, in_order):
    """Some compute and some wait, and it need not be the oldest."""
    queue = Queue("abc", in_order=in_order)
    queue.step(running=1, waiting=2 - deferred, deferred=deferred)

    assert queue.said() == "???"


@pytest.mark.parametrize(("running", "queued", "said"), [(0, 3, "qqq"), (3, 0, "ppp")])
def test_where_all_are_alike_the_order_does_not_matter(running, queued, said):
    """All wait, or all compute: true whatever the policy."""
    queue = Queue("abc", in_order=False)
    queue.step(running=running, waiting=queued)

    assert queue.said() == said


def test_requests_of_nobody_keep_their_place():
    """A request from outside any HTTP request may be the one that computes."""
    queue = Queue()
    queue.alive.add("strange")
    queue.waiting.add("strange", None, queue.alive)
    queue.hand_off("a")
    queue.step(running=1, waiting=1)

    assert queue.said() == "q"


def test_the_engines_own_stamps_win():
    """With the first output they are there, and what was inferred is forgotten."""
    queue = Queue("a")
    queue.step(running=1, waiting=0)
    call = queue.calls["a"]
    call.mark("queued", call.handed_off + 3)
    call.mark("scheduled", call.handed_off + 5)

    assert call.stamps() == (call.handed_off + 3, call.handed_off + 5, False)


def test_what_is_kept_is_bounded_by_what_lives(monkeypatch):
    """Aborted requests behind one that stays are swept away."""
    monkeypatch.setattr(waiting_module, "_SWEEP_AT", 4)
    queue = Queue("a")
    for number in range(50):
        queue.hand_off(f"gone {number}")
        queue.abort(f"gone {number}")

    assert len(queue.waiting._handed_off) <= 8
    queue.step(running=0, waiting=1)
    assert queue.said()[0] == "q"


# --- against an engine that is first come, first served ------------------------------------------


class Scheduler:
    """vLLM's rules as far as they matter: slots, a budget of tokens a step, chunked prompts."""

    def __init__(self, slots=2, budget=4):
        self.slots, self.budget = slots, budget
        self.running, self.waiting, self.inbox, self.aborts = [], [], [], []
        self.left, self.tokens = {}, {}

    def take(self, name, prompt, tokens):
        """A request is on its way; the step in flight does not know of it."""
        self.inbox.append(name)
        self.left[name], self.tokens[name] = prompt, tokens

    def receive(self):
        """What was sent before the step begins is heard."""
        self.waiting += self.inbox
        for queue in (self.running, self.waiting):
            queue[:] = [name for name in queue if name not in self.aborts]
        self.inbox, self.aborts = [], []

    def step(self):
        """Names that got a token, and those of them that are done."""
        room, emitted = self.budget, []
        for name in [*self.running, *self.waiting]:
            if not room or (name in self.waiting and len(self.running) >= self.slots):
                break
            if name in self.waiting:
                self.waiting.remove(name)
                self.running.append(name)
            chunk = min(room, self.left[name] or 1)
            room -= chunk
            self.left[name] = max(0, self.left[name] - chunk)
            if not self.left[name]:
                emitted.append(name)
                self.tokens[name] -= 1
        done = [name for name in emitted if not self.tokens[name]]
        self.running = [name for name in self.running if name not in done]
        return emitted, done


class Served(Queue):
    """Requests in front of that scheduler; what is sent during a step is heard after it."""

    def __init__(self):
        super().__init__()
        self.scheduler, self.departures = Scheduler(), Departures()

    def ask(self, prompt, tokens):
        """One more request, of so many tokens in and out."""
        name = str(len(self.calls))
        self.hand_off(name)
        self.departures.came()
        self.scheduler.take(name, prompt, tokens)

    def leave(self, number):
        """One of those that are alive goes."""
        if self.alive:
            name = sorted(self.alive)[number % len(self.alive)]
            self.abort(name)
            self.scheduler.aborts.append(name)

    def finish_step(self):
        """The step in flight is over, and is reported; whether anything was made of it."""
        emitted, done = self.scheduler.step()
        for name in emitted:
            self.waiting.leave(name)
            self.calls[name].mark("first_token")
        for name in done:
            self.alive.discard(name)
            self.departures.ended()
        running, waiting = len(self.scheduler.running), len(self.scheduler.waiting)
        counts = Counts(running, waiting, 0, len(emitted) - len(done))
        self.fake.advance(STEP)
        usable = self.departures.are_known(len(self.alive)) and counts.total <= len(self.alive)
        if usable:
            self.waiting.observe(counts, self.alive, before=self.before, at=self.fake.now)
        self.before = self.fake.now
        self.scheduler.receive()
        return usable


ACTS = st.one_of(
    st.tuples(st.just("ask"), st.integers(1, 12), st.integers(1, 5)),
    st.tuples(st.just("leave"), st.integers(0, 30)),
    st.tuples(st.just("finish_step")),
)


@given(st.lists(ACTS, max_size=80))
def test_what_is_said_is_what_the_scheduler_did(acts):
    """Whatever comes and leaves: who is said to compute does, and who is said to wait waits."""
    queue = Served()
    for act, *numbers in acts:
        usable = getattr(queue, act)(*numbers)
        for name in queue.alive if act == "finish_step" else ():
            call = queue.calls[name]
            if call.first_token:
                continue
            computes = name in queue.scheduler.running
            assert computes or not call.seen_scheduled
            assert not usable or computes == bool(call.seen_scheduled)


def test_an_abort_is_doubtful_for_two_reports():
    """The step in flight may count it; then it is known to be gone."""
    departures = Departures()
    for _ in range(3):
        departures.came()
    assert departures.are_known(3) is True
    departures.ended()
    assert departures.are_known(2) is True

    assert [departures.are_known(1) for _ in range(3)] == [False, False, True]
