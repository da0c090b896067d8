"""Spans of other instrumentations, heard inside requests: whose they are, what comes of them."""

import asyncio
import threading

import pytest
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON
from opentelemetry.trace import SpanContext, TraceFlags

import llm_trace
from llm_trace import semconv as s
from llm_trace.core import faults
from llm_trace.core.ledger import MAX_CLAIMS
from llm_trace.observers import retrievals as module
from llm_trace.observers.retrievals import Retrievals
from llm_trace.observers.sdk.provider import ProviderSink, listen
from llm_trace.observers.spans import SpanObserver
from llm_trace.observers.tracer import OtelTracer
from llm_trace.testing import (
    FakeClock,
    Recorder,
    Server,
    http_scope,
    response_body,
    response_start,
    watched,
)

MS = 1_000_000
RETRIEVER = {"openinference.span.kind": "RETRIEVER"}


class Traced:
    """An app's own provider that we hear, requests in it, and time that stands still."""

    def __init__(self, sampler=ALWAYS_ON):
        self.clock = FakeClock()
        self.exported = InMemorySpanExporter()
        self.provider = TracerProvider(sampler, shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exported))
        self.heard = Retrievals(("qdrant",))
        listen(self.provider, self.heard.started, self.heard.ended)
        self.theirs = self.provider.get_tracer("theirs")
        self.recorder = Recorder()

    @property
    def wall(self):
        """Unix ns now."""
        return self.clock.clock.wall_ns()

    def start(self, name="retriever", attributes=RETRIEVER, **more):
        """A span that another instrumentation starts now."""
        return self.theirs.start_span(
            name, attributes=dict(attributes), start_time=self.wall, **more
        )

    def retrieve(self, ms, documents=None, **more):
        """A retrieval of theirs that takes some ms."""
        attributes = dict(RETRIEVER)
        if documents is not None:
            attributes["db.response.returned_rows"] = documents
        span = self.start(attributes=attributes, **more)
        self.clock.advance(ms * MS)
        span.end(self.wall)

    def serving(self, code):
        """An app that runs `code` in each request, behind the middleware."""

        async def app(_scope, receive, send):
            await receive()
            result = code()
            if asyncio.iscoroutine(result):
                await result
            await send(response_start())
            await send(response_body(b"{}"))

        sink = ProviderSink(self.provider)
        spans = SpanObserver(lambda: sink, limit=100, latency=False)
        tracer = OtelTracer(lambda: sink)
        return watched(app, self.recorder, spans, clock=self.clock, tracer=tracer)

    def serve(self, code):
        """Serve one request, whose record it is."""
        server = Server(b"{}")
        asyncio.run(self.serving(code)(http_scope(), server.receive, server.send))
        return self.recorder.records[-1]

    @property
    def names(self):
        """The names of the exported spans."""
        return [span.name for span in self.exported.get_finished_spans()]

    @property
    def root(self):
        """The attributes of the root span."""
        return self.exported.get_finished_spans()[-1].attributes


@pytest.fixture
def traced():
    """Requests whose spans are all recorded."""
    return Traced()


def test_their_retrieval_is_a_phase_of_the_request(traced):
    """The ledger takes its time and the documents; the span stays theirs and is the only one."""

    def code():
        traced.clock.advance(2 * MS)
        traced.retrieve(30, documents=4)
        traced.clock.advance(5 * MS)

    record = traced.serve(code)

    assert {"unattributed": 7 * MS, "retrieval": 30 * MS} == record.phases
    assert ["retriever"] == [name for name in traced.names if "retriev" in name]
    assert 4 == traced.root[s.RETRIEVAL_DOCUMENTS]


def test_retrievals_side_by_side_count_once_in_time_and_each_in_documents(traced):
    """Parallel searches: the union of their time, the sum of what they found."""

    def code():
        one, other = (
            traced.start(attributes={**RETRIEVER, "db.response.returned_rows": n}) for n in (3, 4)
        )
        traced.clock.advance(10 * MS)
        one.end(traced.wall)
        traced.clock.advance(5 * MS)
        other.end(traced.wall)

    assert {"retrieval": 15 * MS} == traced.serve(code).phases
    assert 7 == traced.root[s.RETRIEVAL_DOCUMENTS]


@pytest.mark.parametrize(("outer", "expected"), [(3, 3), (None, 10)])
def test_a_store_inside_a_retriever_is_not_counted_twice(traced, outer, expected):
    """A framework's retriever around a store's client: one wait, and the outer's documents."""

    def code():
        attributes = dict(RETRIEVER)
        if outer is not None:
            attributes["db.response.returned_rows"] = outer
        span = traced.start(attributes=attributes)
        with trace.use_span(span):
            chain = traced.start("chain", {})
            with trace.use_span(chain, end_on_exit=True):
                traced.retrieve(20, documents=10)
        span.end(traced.wall)

    assert {"retrieval": 20 * MS} == traced.serve(code).phases
    assert expected == traced.root[s.RETRIEVAL_DOCUMENTS]


@pytest.mark.parametrize(("said", "expected"), [(2, 2), (None, 10)])
def test_the_apps_own_word_is_not_counted_twice(traced, said, expected):
    """`llm_trace.retrieval()` around an instrumented client is one retrieval, and one span."""

    def code():
        with llm_trace.retrieval("shelf", documents=said, tokens=90):
            traced.clock.advance(1 * MS)
            traced.retrieve(20, documents=10)

    assert {"retrieval": 21 * MS} == traced.serve(code).phases
    assert expected == traced.root[s.RETRIEVAL_DOCUMENTS]
    assert 90 == traced.root[s.RETRIEVAL_TOKENS]
    assert 1 == traced.names.count("retrieval shelf")


def test_a_span_that_ends_elsewhere_belongs_to_where_it_started(traced):
    """Clients end their spans in callbacks, in threads that know nothing of the request."""

    def code():
        span = traced.start()
        traced.clock.advance(8 * MS)
        thread = threading.Thread(target=span.end, args=(traced.wall,))
        thread.start()
        thread.join()

    assert {"retrieval": 8 * MS} == traced.serve(code).phases


def test_a_thread_that_was_only_given_the_parent_is_found(traced):
    """Where the trace context alone was handed over, the root span says whose request it is."""

    def code():
        parent = otel_context.get_current()
        thread = threading.Thread(target=traced.retrieve, args=(8,), kwargs={"context": parent})
        thread.start()
        thread.join()

    assert {"retrieval": 8 * MS} == traced.serve(code).phases


def test_requests_of_one_trace_are_told_apart(traced):
    """A client may make many calls in one trace, side by side."""
    headers = [(b"traceparent", b"00-00000000000000000000000000000abc-0000000000000def-01")]
    both = asyncio.Barrier(2) if hasattr(asyncio, "Barrier") else None
    if both is None:
        pytest.skip("asyncio has barriers from 3.11 on")
    waits = iter((5, 9))

    async def code():
        mine = next(waits)
        await both.wait()
        traced.retrieve(mine)
        await both.wait()

    async def main():
        app = traced.serving(code)
        servers = [Server(b"{}"), Server(b"{}")]
        await asyncio.gather(
            *(app(http_scope(headers=headers), each.receive, each.send) for each in servers)
        )

    asyncio.run(main())

    assert [5 * MS, 9 * MS] == sorted(r.phases["retrieval"] for r in traced.recorder.records)


def test_a_request_that_dies_in_its_retrieval_shows_it(traced):
    """The span ends with the exception, before the request does."""

    def code():
        span = traced.start()
        traced.clock.advance(40 * MS)
        span.end(traced.wall)
        raise TimeoutError

    with pytest.raises(TimeoutError):
        traced.serve(code)

    assert {"retrieval": 40 * MS} == traced.recorder.record.phases


def test_other_spans_and_other_places_change_nothing(traced):
    """Spans that are no retrieval, and retrievals outside of requests."""

    def code():
        span = traced.start("tool", {})
        traced.clock.advance(3 * MS)
        span.end(traced.wall)

    traced.retrieve(5)
    record = traced.serve(code)
    traced.retrieve(5)

    assert {"admission", "unattributed"} >= record.phases.keys()
    assert {} == traced.heard._open


def test_what_ends_after_its_request_is_late_and_counted(traced):
    """A background task may go on searching; the record is made by then."""
    before = faults.dropped["late_retrieval"]
    spans = []

    record = traced.serve(lambda: spans.append(traced.start()))
    spans[0].end()

    assert () == record.intervals
    assert before + 1 == faults.dropped["late_retrieval"]


def test_an_unsampled_request_shows_none_of_it():
    """Spans that are not recorded are not seen: the time stays where it was."""
    traced = Traced(ALWAYS_OFF)

    assert {"unattributed": 5 * MS} == traced.serve(lambda: traced.retrieve(5)).phases


def test_many_lookups_leave_room_for_the_apps_own_words(traced):
    """Their retrievals have half of the room of a request, and the app's phases the rest."""
    before = faults.dropped["retrievals"]

    def code():
        for _ in range(MAX_CLAIMS):
            traced.retrieve(1)
        with llm_trace.phase("rerank"):
            traced.clock.advance(7 * MS)

    assert 7 * MS == traced.serve(code).phases["rerank"]
    assert before + MAX_CLAIMS // 2 == faults.dropped["retrievals"]


def test_spans_that_never_end_are_bounded(traced, monkeypatch):
    """What is watched at once has a bound, and requests that are over do not fill it."""
    monkeypatch.setattr(module, "MAX_OPEN", 2)
    before = faults.dropped["retrieval_spans"]
    kept = []

    traced.serve(lambda: kept.extend(traced.start() for _ in range(5)))

    assert 2 == len(traced.heard._open)
    assert before + 3 == faults.dropped["retrieval_spans"]

    assert {"retrieval": 6 * MS} == traced.serve(lambda: traced.retrieve(6)).phases
    assert {} == traced.heard._open


def test_a_clock_that_was_set_back_gives_no_negative_time(traced):
    """Their stamps are wall time: what lies outside of the request is cut at its bounds."""

    def code():
        span = traced.theirs.start_span(
            "r", attributes=RETRIEVER, start_time=traced.wall - 3_600_000 * MS
        )
        traced.clock.advance(5 * MS)
        span.end(traced.wall - 7_200_000 * MS)

    record = traced.serve(code)

    assert [(record.received, record.received)] == [(i.start, i.end) for i in record.intervals]


def test_their_spans_are_not_counted_as_ours(traced):
    """A trace in the queue is as long as the spans that are made of it: drops are counted by it."""
    queued = []

    class Queue:
        """A sink that keeps whole traces."""

        def emit(self, trace):
            """Keep one."""
            queued.append(trace)

    def code():
        traced.retrieve(3)
        with llm_trace.retrieval("shelf"):
            traced.retrieve(4)

    traced.serve(code)
    spans = SpanObserver(Queue, limit=100, latency=False)
    spans.observe(traced.recorder.record)

    assert 3 == len(traced.recorder.record.intervals)
    assert ["retrieval shelf", "chat"] == [span.name for span in queued[0]]
    assert 2 == len(queued[0])


def test_a_span_whose_request_nobody_knows_is_left_alone(traced):
    """A parent in the trace of a live request is not enough: it must be one of its spans."""
    stranger = SpanContext(0xABC, 0x999, is_remote=False, trace_flags=TraceFlags(1))
    parent = trace.set_span_in_context(trace.NonRecordingSpan(stranger))
    headers = [(b"traceparent", b"00-00000000000000000000000000000abc-0000000000000def-01")]

    def code():
        thread = threading.Thread(target=traced.retrieve, args=(8,), kwargs={"context": parent})
        thread.start()
        thread.join()

    server = Server(b"{}")
    asyncio.run(traced.serving(code)(http_scope(headers=headers), server.receive, server.send))

    assert {"unattributed": 8 * MS} == traced.recorder.record.phases


def test_a_span_that_cannot_be_read_harms_nobody(traced):
    """A fault of ours is contained and counted, at the start of a span and at its end."""
    before = faults.internal["retrievals"]

    class Odd:
        """No span at all."""

    with faults.production():
        traced.heard.started(Odd())
        traced.heard.ended(Odd())

    assert before + 2 == faults.internal["retrievals"]
