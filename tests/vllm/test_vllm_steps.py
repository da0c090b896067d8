"""The steps of an engine, and the ticks of a request that are read from them."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_trace_vllm import steps as steps_module
from llm_trace_vllm.steps import PREEMPTED, PREFILL, Decoding, Steps

START = 10**15


class Request:
    """A request as the join drives it: it says only what is not one more token in one more step."""

    def __init__(self, steps, tokens=1):
        self.steps = steps
        self.last = steps.last
        self.decoding = Decoding(steps, tokens)

    def output(self, before, tokens=1, *, preempted=False):
        """An output in the latest step; `before` was the end of the step before it."""
        if self.last != before or tokens != 1 or preempted:
            self.decoding.tick(self.last, tokens, preempted=preempted)
        self.last = self.steps.last

    def read(self):
        """Its ticks so far: gaps, and tokens where there were several."""
        ticks = self.decoding.read(self.last)
        return ticks and (list(ticks.gaps), dict(ticks.several))

    def causes(self):
        """Why each of its gaps may have been long."""
        ticks = self.decoding.read(self.last)
        return [ticks.cause(index) for index in range(len(ticks.gaps))]


def steps_at(*ends):
    """Steps that were over at these times."""
    steps = Steps()
    for end in ends:
        steps.add(START + end)
    return steps


def run(steps, request, *gaps):
    """So many further steps, each with one token for the request."""
    for gap in gaps:
        before = steps.last
        steps.add(before + gap)
        request.output(before)


def test_a_request_in_every_step_ticks_with_the_engine():
    """Nothing was noted for it, and every gap is there."""
    steps = steps_at(0, 7)
    request = Request(steps)
    run(steps, request, 10, 11, 12)

    assert request.read() == ([10, 11, 12], {})
    assert request.causes() == [None, None, None]


def test_the_end_is_its_own_last_token():
    """The engine goes on without it."""
    steps = steps_at(0)
    request = Request(steps)
    run(steps, request, 10, 11)
    steps.add(steps.last + 50)

    assert request.read() == ([10, 11], {})


def test_missed_steps_make_one_long_gap():
    """Two steps without it, then it goes on as before."""
    steps = steps_at(0)
    request = Request(steps)
    run(steps, request, 10)
    for gap in (20, 30):
        steps.add(steps.last + gap)
    run(steps, request, 5, 6)

    assert request.read() == ([10, 55, 6], {})


def test_a_preemption_is_the_cause_of_its_gap():
    """Even where no other request had a step in between."""
    steps = steps_at(0)
    request = Request(steps)
    run(steps, request, 10)
    before = steps.last
    steps.add(before + 400)
    request.output(before, preempted=True)

    assert request.read() == ([10, 400], {})
    assert request.causes() == [None, PREEMPTED]


def test_a_prefill_in_the_same_step_is_the_cause_of_its_gap():
    """Of that gap, and of none beside it; also of one over several steps."""
    steps = steps_at(0)
    request = Request(steps)
    run(steps, request, 10, 300)
    steps.has_prefill()
    run(steps, request, 10)
    steps.add(steps.last + 100)
    steps.has_prefill()
    run(steps, request, 10)

    assert request.causes() == [None, PREFILL, None, PREFILL]


def test_its_own_first_step_is_no_cause():
    """The prefill that made its first token came before its first gap."""
    steps = steps_at(0)
    steps.has_prefill()
    request = Request(steps)
    run(steps, request, 10)

    assert request.causes() == [None]


def test_several_tokens_of_a_step_are_counted():
    """With the first output, too: they came in no time."""
    steps = steps_at(0)
    request = Request(steps, tokens=3)
    before = steps.last
    steps.add(before + 10)
    request.output(before, tokens=4)
    run(steps, request, 11)

    assert request.read() == ([0, 10, 11], {0: 2, 1: 4})
    assert request.causes() == [None, None, None]


def test_parts_of_one_step_are_one_step():
    """vLLM hands over the outputs of a large step in several calls."""
    steps = steps_at(0, 10, 10, 10)

    assert steps.number == 1


def test_a_step_before_the_first_has_no_prefill():
    """The word may come before any outputs did."""
    steps = Steps()
    steps.has_prefill()

    assert (steps.number, steps.last) == (-1, 0)


def test_what_was_dropped_is_not_known_any_more(monkeypatch):
    """A request that began in a step of the dropped half has no ticks; a later one has all."""
    monkeypatch.setattr(steps_module, "MAX_STEPS", 8)
    steps = steps_at(0)
    old = Request(steps)
    run(steps, old, *[10] * 5)
    young = Request(steps)
    for _ in range(4):
        before = steps.last
        steps.add(before + 10)
        for request in (old, young):
            request.output(before)

    assert old.read() is None
    assert young.read() == ([10] * 4, {})


def test_notes_of_one_request_are_bounded(monkeypatch):
    """Beyond the bound its ticks are not known: no half of them is shown for the whole."""
    monkeypatch.setattr(steps_module, "MAX_NOTES", 3)
    steps = steps_at(0)
    request = Request(steps)
    for _ in range(5):
        before = steps.last
        steps.add(before + 10)
        request.output(before, tokens=2)

    assert request.read() is None


def test_a_request_moves_to_the_steps_of_its_engine():
    """Which of several engines it is on is known after its first step."""
    provisional, own = steps_at(5), steps_at(0, 1, 2)
    request = Request(provisional)
    own.add(provisional.last)
    request.decoding.move(own)
    request.steps = own
    run(own, request, 10, 11)

    assert request.read() == ([10, 11], {})


@given(st.lists(st.tuples(st.integers(1, 10**9), st.integers(0, 4)), max_size=60))
def test_ticks_are_what_the_engine_logged(script):
    """Whatever steps it missed and whatever they brought: gap by gap, and token by token."""
    steps = steps_at(0)
    request = Request(steps)
    stamps, several = [steps.last], {}
    for gap, tokens in script:
        before = steps.last
        steps.add(before + gap)
        if tokens:
            request.output(before, tokens)
            stamps.append(steps.last)
            if tokens > 1:
                several[len(stamps) - 2] = tokens

    gaps = [b - a for a, b in pairwise(stamps)]
    assert request.read() == (gaps, several)


@pytest.mark.parametrize("missing", [0, START - 5])
def test_an_end_before_its_beginning_has_no_ticks(missing):
    """A stamp that agrees with nothing makes no tick."""
    request = Request(steps_at(0))

    assert list(request.decoding.read(missing).gaps) == []
