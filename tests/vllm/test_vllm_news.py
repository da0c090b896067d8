"""News of EngineCore's schedule, from the carrier to the calls that it speaks of."""

import pytest
from vllm_doubles import QUEUED, SCHEDULED, Engine, Event, Http, Output, Processor, request, seconds

from llm_trace.core import record as records
from llm_trace.core.freeze import Answer, freeze
from llm_trace.core.outcome import Ending
from llm_trace.core.record import HttpFacts, PrefillChunk, transfers
from llm_trace_vllm import join as join_module
from llm_trace_vllm import news
from llm_trace_vllm.join import Join
from llm_trace_vllm.news import CARRIER, Computed, News, Stamps, Transfer


@pytest.fixture
def http(monkeypatch):
    """A live request with one engine request, `a-1`, just handed off."""
    http = Http()
    monkeypatch.setattr(join_module, "_now", lambda: http.fake.now)
    http.processor = Processor()
    http.join = Join(Engine(http.processor))
    with http:
        http.processor.add_request(request("a-1"))
        yield http


def carrier(stamps=(), chunks=(), transfers=()):
    """The output that EngineCore adds to a step."""
    output = Output(CARRIER, [])
    output.trace_headers = news.write(News(list(stamps), list(chunks), list(transfers)))
    return output


def step(http, *outputs, after):
    """One step of the engine, `after` ns of ours."""
    http.fake.advance(after)
    http.processor.process_outputs(list(outputs), seconds(http.fake.now), None)


def cancelled(http):
    """The record of a request whose client leaves now."""
    answer = Answer(Ending(status=200, client_gone=True), HttpFacts(), "chat", streamed=True)
    return freeze(http.timeline, answer, http.fake.now)


def test_what_is_written_is_read():
    """Types and numbers are as they were."""
    told = News(
        [Stamps("a", 1.25, 0.0)], [Computed("b", 512, 1.5, 1.75)], [Transfer("c", 1.5, 0.0)]
    )
    output = Output(CARRIER, [])
    output.trace_headers = news.write(told)

    assert news.read(output) == told


def test_an_abort_in_the_queue_is_queue_wait(http):
    """Without the news it would be `engine`: queued or computing, nobody said."""
    at = http.fake.now
    step(http, carrier([Stamps("a-1", seconds(at + 1_000), 0.0)]), after=5_000)
    record = cancelled(http)

    assert record.phases == {"queue_wait": 5_000}
    assert record.last_phase == "queue_wait"


def test_an_abort_in_prefill_is_prefill(http):
    """Cut off where the client left, with the chunks that were computed for nobody."""
    at = http.fake.now
    stamps = Stamps("a-1", seconds(at + 1_000), seconds(at + 2_000))
    chunk = Computed("a-1", 512, seconds(at + 2_000), seconds(at + 4_000))
    step(http, carrier([stamps], [chunk]), after=5_000)
    record = cancelled(http)

    assert record.phases == {"queue_wait": 2_000, "prefill": 3_000}
    assert record.last_phase == "prefill"
    assert record.visible.prefill_chunks == 1
    assert record.visible.chunks == (PrefillChunk(512, at + 2_000, at + 4_000),)


def test_news_and_vllms_own_events_agree(http):
    """Told early and told again with the first output: one queue, one schedule, no preemption."""
    at = http.fake.now
    queued, scheduled = seconds(at + 1_000), seconds(at + 2_000)
    step(http, carrier([Stamps("a-1", queued, scheduled)]), after=5_000)
    events = [Event(QUEUED, queued), Event(SCHEDULED, scheduled)]
    step(http, carrier(), Output("a-1", events=events), after=5_000)

    call = http.call
    assert (call.queued, call.scheduled, call.first_token) == (at + 1_000, at + 2_000, at + 10_000)
    assert (call.preemptions, call.requeued_ns) == (0, 0)


def test_news_of_strangers_and_of_the_dead_is_passed_over(http):
    """Other tasks' requests, and those whose client has left by then."""
    at = http.fake.now
    told = [
        carrier(
            [Stamps(key, seconds(at + 1), seconds(at + 2))],
            [Computed(key, 4, seconds(at + 2), seconds(at + 3))],
        )
        for key in ("stranger", "a-1")
    ]
    step(http, told[0], after=5_000)
    cancelled(http)
    step(http, told[1], after=5_000)

    assert (http.call.queued, http.call.scheduled, http.call.prefill_chunks) == (0, 0, None)


def test_stamps_of_another_clock_wait_for_vllms_own(http):
    """Queued before it was handed off: only its first output says how that clock lies to ours."""
    step(http, carrier([Stamps("a-1", seconds(http.fake.now - 10**9), 0.0)]), after=5_000)

    assert (http.call.queued, http.join.clock.foreign) == (0, False)


def test_vllm_hears_of_the_carrier_as_it_came(http):
    """It passes over requests that it does not know, as over those that were aborted."""
    step(http, carrier(), Output("a-1"), after=5_000)

    assert http.processor.heard[-1] == ("step", [CARRIER, "a-1"])


def test_the_kept_chunks_are_bounded_and_all_are_counted(http):
    """A prompt of a thousand chunks holds the first of them."""
    for number in range(1_000):
        http.call.computed(512, number, number + 1)
    record = http.call.freeze()

    assert record.prefill_chunks == 1_000
    assert record.chunks == tuple(PrefillChunk(512, n, n + 1) for n in range(32))


def test_a_transfer_is_a_part_of_the_wait(http):
    """Told when it begins and again when it is over: one, within `queue_wait`."""
    at = http.fake.now
    begun = Transfer("a-1", seconds(at + 2_000), 0.0)
    step(http, carrier([Stamps("a-1", seconds(at + 1_000), 0.0)], [], [begun]), after=5_000)
    over = begun._replace(end=seconds(at + 6_000))
    step(http, carrier(transfers=[over]), after=5_000)
    record = cancelled(http)

    assert record.phases == {"queue_wait": 10_000}
    assert record.visible.transfers == (records.Transfer(at + 2_000, at + 6_000),)
    assert transfers(record) == list(record.visible.transfers)


def test_an_abort_in_a_transfer_ends_it(http):
    """It lasted until the client left, as far as anybody can say."""
    at = http.fake.now
    told = carrier(
        [Stamps("a-1", seconds(at + 1_000), 0.0)], [], [Transfer("a-1", seconds(at + 2_000), 0.0)]
    )
    step(http, told, after=5_000)
    record = cancelled(http)

    assert record.last_phase == "queue_wait"
    assert record.visible.transfers == (records.Transfer(at + 2_000, 0),)
    assert transfers(record) == [records.Transfer(at + 2_000, at + 5_000)]


def test_a_transfer_of_another_clock_is_not_told(http):
    """It began before its request was handed off."""
    http.fake.advance(10**10)
    http.processor.add_request(request("a-2"))
    told = [Transfer(key, seconds(http.fake.now - 10**9), 0.0) for key in ("a-1", "a-2")]
    step(http, carrier(transfers=told), after=5_000)
    first, second = http.timeline.calls

    assert (len(first.transfers), len(second.transfers)) == (1, 0)


def test_transfers_that_fail_for_ever_are_bounded(http):
    """The first are kept."""
    for number in range(1, 100):
        http.call.transferred(2 * number, 2 * number + 1)

    assert http.call.freeze().transfers == tuple(
        records.Transfer(2 * number, 2 * number + 1) for number in range(1, 9)
    )
