"""Samples that are added by the column leave what each would have left by itself."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter as Tally

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Counter, Histogram

from llm_trace import semconv as s
from llm_trace.asgi.gaps import GapCounter
from llm_trace.core import faults
from llm_trace.core.identity import TraceIdentity
from llm_trace.core.record import ChunkGaps
from llm_trace.observers.samples import Durations, Plan, Row, Samples, add_gaps

MS = 1_000_000


@pytest.fixture(autouse=True)
def counted():
    """Nothing dropped yet."""
    faults.dropped.clear()


def histogram(name="g", buckets=s.TOKEN_BUCKETS):
    """A histogram of its own."""
    return Histogram(name, name, buckets=buckets, registry=None)


def told(metric):
    """Every sample of a metric, without when it was made."""
    samples = next(iter(metric.collect())).samples
    kept = [x for x in samples if "created" not in x.name]
    return [(x.name, x.labels, x.value, x.exemplar and x.exemplar[:2]) for x in kept]


def rounded(metric):
    """The same to the nanosecond: theirs are added as floats."""
    return [(name, labels, round(value, 9), e) for name, labels, value, e in told(metric)]


def mark(number):
    """Where request `number` is in its trace."""
    return TraceIdentity(number, number), number


def ids(number):
    """The same as the labels of an exemplar."""
    return {"trace_id": f"{number:032x}", "span_id": f"{number:016x}"}


@given(st.lists(st.tuples(st.sampled_from([0, 1, 2, 80_000]), st.integers(0, 3)), max_size=20))
def test_column_is_what_the_public_call_does(observed):
    """Buckets and exemplars are those that prometheus_client would write, bounds included."""
    ours, theirs = histogram(), histogram()
    column = [ms * MS for ms, _ in observed]

    Durations(ours).add(column, [mark(n) if n else None for _, n in observed])
    for ms, number in observed:
        theirs.observe(ms / 1e3, ids(number) if number else None)

    assert rounded(theirs) == rounded(ours)


class OtherHistogram:
    """A histogram of a version with other insides."""

    def __init__(self):
        self.observed = []

    def observe(self, value, exemplar=None):
        """Keep what is observed."""
        self.observed.append((value, exemplar))


def test_other_histograms_are_observed_by_their_public_call():
    """Where buckets are kept otherwise nothing is lost."""
    other = OtherHistogram()

    Durations(other).add([500 * MS, 700 * MS], [None, mark(1)])

    assert [(0.5, None), (0.7, ids(1))] == other.observed


def plan_of():
    """A plan with one accumulator of each sort."""
    metrics = (histogram(), Counter("c", "c", registry=None), Counter("t", "t", registry=None))
    return Plan([Durations(metrics[0])], [metrics[1]], [metrics[2]]), metrics


def row(ms):
    """One request of this many ms."""
    return Row([ms * MS], [ms], [ms * MS], (), None)


def test_rows_wait_until_there_is_no_room_or_somebody_reads():
    """No sample is lost, and none is added twice."""
    samples = Samples(room=3)
    plan, (_, counter, seconds) = plan_of()
    seen = []

    for ms in (1, 2, 4, 8):
        samples.add(plan, row(ms))
        seen.append(told(counter)[0][2])
    samples.drain()
    samples.drain()

    assert seen == [0, 0, 7, 7]
    assert (told(counter)[0][2], told(seconds)[0][2]) == (15, 0.015)


def test_sums_are_exact():
    """A tenth of a second ten times is a second: nanoseconds are added as integers."""
    samples = Samples(room=100)
    plan, (duration, _, seconds) = plan_of()

    for _ in range(10):
        samples.add(plan, row(100))
    samples.drain()

    assert told(seconds)[0][2] == 1.0
    assert next(x[2] for x in told(duration) if x[0] == "g_sum") == 1.0


def test_a_request_that_ends_in_the_midst_of_adding_waits():
    """The garbage collector may close one that was forgotten, on the very thread that adds."""
    samples = Samples(room=1)
    plan, (_, counter, _) = plan_of()

    class Collecting:
        """A counter during whose first increment a request ends."""

        ended = False

        def inc(self, _number):
            if not self.ended:
                self.ended = True
                samples.add(plan, row(2))

    samples.add(Plan(plan.durations, [Collecting()], plan.seconds, []), row(1))
    assert told(counter)[0][2] == 0
    samples.drain()

    assert told(counter)[0][2] == 2


def test_threads_lose_nothing():
    """Requests of several event loops and a scrape meet in the same rows."""
    samples = Samples(room=4)
    plan, (_, counter, _) = plan_of()

    def serve():
        for _ in range(500):
            samples.add(plan, row(1))
            samples.drain()

    threads = [threading.Thread(target=serve) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert told(counter)[0][2] == 2000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_process_forked_amid_adding_adds_on():
    """A lock that another thread held at the fork does not hang the child."""
    samples = Samples()
    with samples._adding:
        child = os.fork()
        if not child:
            samples.drain()
            os._exit(7)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_gaps_added_at_once_equal_gaps_observed_one_by_one():
    """A request's counted gaps leave the histogram as if each had been observed."""
    chosen = random.Random(5)  # noqa: S311
    gaps = [chosen.choice([0, MS, chosen.randrange(200 * 10**9)]) for _ in range(500)]
    counter = GapCounter()
    one = Histogram("g", "g", buckets=s.TOKEN_BUCKETS, registry=None)
    each = Histogram("g", "g", buckets=s.TOKEN_BUCKETS, registry=None)

    for gap in gaps:
        counter.add(gap)
        each.observe(gap / 1e9)
    add_gaps(one, [counter.freeze(sum(gaps))])

    def numbers(histogram):
        samples = next(iter(histogram.collect())).samples
        return {(x.name, x.labels.get("le")): x.value for x in samples if "created" not in x.name}

    assert pytest.approx(numbers(each)) == numbers(one)


@pytest.mark.parametrize(
    ("histogram", "gaps"),
    [
        (object(), ChunkGaps([1], 1, 1)),
        (Histogram("h", "h", buckets=(1,), registry=None), ChunkGaps([1], 1, 1)),
        (Histogram("i", "i", buckets=(1,), registry=None), ChunkGaps([1, 0], float("nan"), 1)),
    ],
)
def test_gaps_that_do_not_fit_are_refused(histogram, gaps):
    """Where a version of the library has other insides, or a sum is no number, they are counted."""
    add_gaps(histogram, [gaps])

    assert Tally(chunk_gaps=1) == faults.dropped
