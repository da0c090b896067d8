"""Where a request stands in a trace: its parent comes from its own headers or its own server."""

import asyncio
import logging
from contextlib import contextmanager

import pytest
from opentelemetry import baggage, propagate, trace
from opentelemetry import context as otel_context
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.propagators.b3 import B3MultiFormat, B3SingleFormat
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.propagators.jaeger import JaegerPropagator
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, TraceState
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from span_recorder import REMOTE_SPAN, REMOTE_TRACE, TRACE, SpanRecorder

import llm_trace
from llm_trace.core import faults
from llm_trace.core.identity import TraceIdentity
from llm_trace.observers import tracer as module
from llm_trace.observers.sdk.provider import ProviderSink
from llm_trace.observers.tracer import OtelTracer
from llm_trace.testing import Recorder, drive, http_scope

TRACE_HEX, SPAN_HEX = f"{REMOTE_TRACE:032x}", f"{REMOTE_SPAN:016x}"
GOOD = f"00-{TRACE_HEX}-{SPAN_HEX}-01".encode()


def begun(*headers, sink=None):
    """The identity of a request with these headers."""
    sink = sink or SpanRecorder()
    return sink.tracer().begin([(k.encode(), v) for k, v in headers], "POST /x")


@contextmanager
def current(span):
    """Make `span` the ambient one, as a stale context on a kept-alive connection does."""
    token = otel_context.attach(trace.set_span_in_context(span))
    yield
    otel_context.detach(token)


@pytest.fixture
def local():
    """A tracer of the app's own SDK."""
    return TracerProvider().get_tracer("app")


def test_a_request_without_a_parent_starts_a_trace():
    """Ids are the provider's; the span will be the server's."""
    assert TraceIdentity(TRACE, 1) == begun(("accept", b"*/*"))


def test_the_parent_is_the_one_in_the_headers():
    """Trace id, parent, state and baggage are the request's own, whatever the case of names."""
    state = TraceState([("vendor", "1")])

    identity = begun(
        ("Traceparent", GOOD),
        ("tracestate", b"vendor=1"),
        ("baggage", b"user=7"),
        sink=SpanRecorder(state=state),
    )

    expected = TraceIdentity(
        REMOTE_TRACE, 1, REMOTE_SPAN, trace_state="vendor=1", baggage={"user": "7"}
    )
    assert expected == identity


def test_the_sampler_is_asked_with_the_parent():
    """A parent-based sampler sees the remote parent, its flags and its state."""
    sink = SpanRecorder()

    begun(("traceparent", GOOD), ("tracestate", b"vendor=1"), sink=sink)

    (parent, trace_id, name, kind) = sink.asked[0]
    seen = trace.get_current_span(parent).get_span_context()
    assert (REMOTE_TRACE, "POST /x", SpanKind.SERVER) == (trace_id, name, kind)
    assert (REMOTE_SPAN, True, True) == (seen.span_id, seen.is_remote, seen.trace_flags.sampled)
    assert seen.trace_state.to_header() == "vendor=1"


MALFORMED = {
    "upper case": GOOD.upper(),
    "zero trace": b"00-" + b"0" * 32 + b"-" + SPAN_HEX.encode() + b"-01",
    "zero span": b"00-" + TRACE_HEX.encode() + b"-" + b"0" * 16 + b"-01",
    "version ff": b"ff" + GOOD[2:],
    "extra": GOOD + b"-extra",
    "joined": GOOD + b"," + GOOD,
    "empty": b"",
    "garbage": b"\xff\x00garbage",
    "long": b"00-" + b"a" * 10_000,
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_a_malformed_parent_starts_a_trace(kind, local, caplog):
    """Never an exception, never a log line, never the ambient span."""
    with current(local.start_span("stale", kind=SpanKind.SERVER, context=remote_parent())):
        identity = begun(("traceparent", MALFORMED[kind]))

    assert TraceIdentity(TRACE, 1) == identity
    assert [] == [r for r in caplog.records if r.levelno >= logging.WARNING]


def test_two_parents_are_none():
    """Two header lines cannot both be the parent."""
    assert TraceIdentity(TRACE, 1) == begun(("traceparent", GOOD), ("traceparent", GOOD))


def test_propagators_may_list_the_headers():
    """Some ask which names there are; they are in lower case."""
    assert ["a", "b"] == module._GETTER.keys(module._carrier([(b"A", b"1"), (b"b", b"2")]))


def test_the_environment_is_no_parent(monkeypatch):
    """A TRACEPARENT of the process is not the request's."""
    monkeypatch.setenv("TRACEPARENT", GOOD.decode())

    assert TraceIdentity(TRACE, 1) == begun()


def test_without_a_provider_there_is_no_identity():
    """Nothing is current and headers are left alone."""
    seen = []

    async def app(scope, _receive, _send):
        seen.append((scope["headers"], trace.get_current_span(), llm_trace.headers()))

    scope = http_scope(headers=[(b"traceparent", GOOD)])
    given = scope["headers"]
    asyncio.run(drive(app, scope=scope, tracer=OtelTracer(lambda: None)))

    headers, span, outbound = seen[0]
    assert headers is given
    assert span is trace.INVALID_SPAN
    assert {"traceparent": GOOD.decode()} == outbound


def test_a_provider_set_later_is_used_from_then_on():
    """The sink is looked for at every request."""
    sinks = [None, SpanRecorder()]
    tracer = OtelTracer(lambda: sinks.pop(0))

    assert [None, TraceIdentity(TRACE, 1)] == [tracer.begin([], "n") for _ in range(2)]


def remote_parent():
    """The context of a server span whose request named the remote parent."""
    return propagate.extract({"traceparent": GOOD.decode()})


@pytest.mark.parametrize("parented", [False, True])
def test_a_server_span_of_this_request_is_the_parent(local, parented):
    """Where another layer made the server span of this same request, ours stands under it."""
    headers = [("traceparent", GOOD)] if parented else []
    span = local.start_span(
        "GET", kind=SpanKind.SERVER, context=remote_parent() if parented else None
    )

    with current(span):
        identity = begun(*headers)

    inner = span.get_span_context()
    expected = TraceIdentity(
        inner.trace_id, 1, inner.span_id, parent_is_remote=False, owns_server_span=False
    )
    assert expected == identity


def stale(local, why):
    """An ambient span that is not this request's server span, for one reason."""
    kind = SpanKind.INTERNAL if why == "no server span" else SpanKind.SERVER
    context = None if why == "of another request" else remote_parent()
    span = local.start_span("stale", kind=kind, context=context)
    if why == "ended":
        span.end()
    return span


@pytest.mark.parametrize("why", ["no server span", "of another request", "ended"])
def test_a_stale_span_is_no_parent(local, why):
    """What is current on the connection and is not this request's own is ignored."""
    with current(stale(local, why)):
        identity = begun(("traceparent", GOOD))

    assert TraceIdentity(REMOTE_TRACE, 1, REMOTE_SPAN) == identity


def test_inner_spans_find_ours_and_the_baggage():
    """While the app runs, our span is current, with its flags, state and baggage; then no more."""
    sink = SpanRecorder(state=TraceState([("vendor", "1")]))
    seen = []

    async def app(_scope, _receive, _send):
        span = trace.get_current_span().get_span_context()
        seen.append((span.trace_id, span.span_id, span.trace_state.to_header()))
        seen.append(dict(baggage.get_all()))
        with llm_trace.phase("rerank"):
            seen.append(trace.get_current_span().get_span_context().span_id)
        seen.append(trace.get_current_span().get_span_context().span_id)

    headers = [(b"traceparent", GOOD), (b"baggage", b"user=7")]
    recorder = Recorder()
    asyncio.run(drive(app, recorder, scope=http_scope(headers=headers), tracer=sink.tracer()))

    interval = recorder.record.intervals[0]
    assert [(REMOTE_TRACE, 1, "vendor=1"), {"user": "7"}, interval.span_id, 1] == seen
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_what_the_app_makes_of_the_baggage_is_kept_inside_of_phases():
    """An entry that it does not trust, and took out or replaced, does not come back."""
    seen = []

    async def app(_scope, _receive, _send):
        otel_context.attach(baggage.set_baggage("tenant", "checked"))
        otel_context.attach(baggage.remove_baggage("role"))
        with llm_trace.phase("rerank"):
            seen.append(dict(baggage.get_all()))

    headers = [(b"traceparent", GOOD), (b"baggage", b"tenant=forged,role=admin")]
    tracer = SpanRecorder().tracer()
    asyncio.run(drive(app, Recorder(), scope=http_scope(headers=headers), tracer=tracer))

    assert [{"tenant": "checked"}] == seen


def test_ending_elsewhere_logs_nothing(caplog):
    """A generator closed from another task ends quietly: there is nothing to undo there."""
    tracer = SpanRecorder().tracer()
    identity = TraceIdentity(1, 2)

    token = asyncio.run(in_task(tracer.activate, identity))
    tracer.deactivate(token)
    tracer.deactivate(None)

    assert [] == caplog.records


async def in_task(function, *args):
    """The result of `function`, called in a task of its own."""

    async def call():
        return function(*args)

    return await asyncio.create_task(call())


@pytest.mark.parametrize("sampled", [True, False])
def test_inner_instrumentation_joins_our_trace(sampled):
    """Spans of the app's own SDK are our children, and unsampled when we are."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    sink = ProviderSink(provider)
    flags = "01" if sampled else "00"

    async def app(_scope, _receive, _send):
        provider.get_tracer("app").start_span("inner").end()

    recorder = Recorder()
    headers = [(b"traceparent", GOOD[:-2] + flags.encode())]
    asyncio.run(
        drive(app, recorder, scope=http_scope(headers=headers), tracer=OtelTracer(lambda: sink))
    )

    identity = recorder.record.identity
    found = [(s.context.trace_id, s.parent.span_id) for s in exporter.get_finished_spans()]
    assert sampled is identity.sampled
    assert ([(REMOTE_TRACE, identity.span_id)] if sampled else []) == found


B3_SPAN = f"{TRACE_HEX}-{SPAN_HEX}-1".encode()
B3_MANY = [(b"x-b3-traceid", TRACE_HEX.encode()), (b"x-b3-spanid", SPAN_HEX.encode())]
OURS = f"{1:016x}"
W3C_OURS = (b"traceparent", f"00-{TRACE_HEX}-{OURS}-01".encode())
PROPAGATORS = {
    "b3": (
        B3SingleFormat(),
        [(b"b3", B3_SPAN)],
        [(b"b3", f"{TRACE_HEX}-{OURS}-1".encode())],
    ),
    "b3 in many headers": (
        B3MultiFormat(),
        [*B3_MANY, (b"x-b3-sampled", b"1")],
        [
            (b"x-b3-traceid", TRACE_HEX.encode()),
            (b"x-b3-spanid", OURS.encode()),
            (b"x-b3-sampled", b"1"),
        ],
    ),
    "b3 in one header, read by who writes many": (
        B3MultiFormat(),
        [(b"b3", B3_SPAN)],
        [
            (b"x-b3-traceid", TRACE_HEX.encode()),
            (b"x-b3-spanid", OURS.encode()),
            (b"x-b3-sampled", b"1"),
        ],
    ),
    "jaeger": (
        JaegerPropagator(),
        [(b"uber-trace-id", f"{TRACE_HEX}:{SPAN_HEX}:0:01".encode())],
        [(b"uber-trace-id", f"{TRACE_HEX}:{OURS}:{0:016x}:03".encode())],
    ),
}


@pytest.mark.parametrize("kind", PROPAGATORS)
@pytest.mark.parametrize("composed", [False, True])
def test_every_format_that_is_read_names_our_span(kind, composed, monkeypatch):
    """Inner layers read any of them first; upstreams get all; W3C is always among them."""
    propagator, inbound, ours = PROPAGATORS[kind]
    if composed:
        propagator = CompositePropagator([TraceContextTextMapPropagator(), propagator])
    monkeypatch.setattr(propagate, "get_global_textmap", lambda: propagator)
    monkeypatch.setattr(propagate, "propagator", propagator)
    others = [(b"accept", b"*/*"), (b"baggage", b"user=7"), (b"sentry-trace", b"kept")]
    seen, recorder = [], Recorder()

    async def app(scope, _receive, _send):
        seen.append(scope["headers"])
        seen.append(llm_trace.headers())
        seen.append(trace.get_current_span(propagate.extract(_joined(scope["headers"]))))

    scope = http_scope(headers=[*others, *inbound])
    asyncio.run(drive(app, recorder, scope=scope, tracer=SpanRecorder().tracer()))

    headers, outbound, inner = seen
    assert (REMOTE_TRACE, REMOTE_SPAN) == (
        recorder.record.identity.trace_id,
        recorder.record.identity.parent_span_id,
    )
    assert [*others, W3C_OURS, *ours] == headers
    assert {k.decode(): v.decode() for k, v in [W3C_OURS, *ours]} == outbound
    assert inner.get_span_context().span_id == 1


class Listing(W3CBaggagePropagator):
    """A propagator of somebody's own, which looks through all headers."""

    def extract(self, carrier, context=None, getter=None):
        """Take every header with its prefix."""
        for key in getter.keys(carrier):
            if key.startswith("x-own-"):
                value = getter.get(carrier, key)[0]
                context = baggage.set_baggage(key.removeprefix("x-own-"), value, context)
        return context


@pytest.mark.parametrize(
    ("propagator", "header"),
    [
        (W3CBaggagePropagator(), (b"baggage", b"user=7")),
        (W3CBaggagePropagator(), (b"Baggage", b"user=7")),
        (Listing(), (b"x-own-user", b"7")),
    ],
)
def test_what_is_inbound_without_a_trace_is_read(propagator, header, monkeypatch):
    """Headers are read where a propagator knows one, or may know any, and skipped otherwise."""
    monkeypatch.setattr(propagate, "get_global_textmap", lambda: propagator)
    monkeypatch.setattr(propagate, "propagator", propagator)
    extracted = []
    monkeypatch.setattr(propagator, "extract", _noting(propagator.extract, extracted))
    tracer = SpanRecorder().tracer()

    assert dict(tracer.begin([header], "chat").baggage) == {"user": "7"}
    before = len(extracted)
    tracer.begin([(b"accept", b"*/*")], "chat")
    assert (len(extracted) == before) != isinstance(propagator, Listing)


def _noting(function, calls):
    def noted(*args, **kwargs):
        calls.append(args)
        return function(*args, **kwargs)

    return noted


def _joined(headers):
    return {name.decode(): value.decode() for name, value in headers}


def test_without_a_provider_every_format_is_handed_on_as_it_came(monkeypatch):
    """What an upstream reads is what the client sent."""
    monkeypatch.setattr(propagate, "get_global_textmap", B3SingleFormat)
    seen = []

    async def app(_scope, _receive, _send):
        seen.append(llm_trace.headers())

    scope = http_scope(headers=[(b"b3", B3_SPAN), (b"accept", b"*/*")])
    asyncio.run(drive(app, scope=scope, tracer=OtelTracer(lambda: None)))

    assert [{"b3": B3_SPAN.decode()}] == seen


class Broken(TraceContextTextMapPropagator):
    """A propagator of the app's own that fails when it writes."""

    fields = frozenset({"x-own"})

    def inject(self, *_args, **_more):
        """Fail."""
        raise RuntimeError("no")


def test_a_propagator_that_fails_costs_its_own_format(monkeypatch):
    """The request goes on, with W3C's headers."""
    broken = Broken()
    monkeypatch.setattr(propagate, "get_global_textmap", lambda: broken)
    monkeypatch.setattr(propagate, "propagator", broken)
    seen = []

    async def app(scope, _receive, _send):
        seen.append(scope["headers"])

    with faults.production():
        asyncio.run(drive(app, scope=http_scope(headers=()), tracer=SpanRecorder().tracer()))

    assert [[(b"traceparent", f"00-{TRACE:032x}-{OURS}-01".encode())]] == seen


def test_headers_for_an_upstream_name_our_spans():
    """The engine's spans become children of the call that it serves, never of the caller's span."""
    seen = []

    async def app(_scope, _receive, _send):
        seen.append(llm_trace.headers())
        with llm_trace.engine_call("chat", "m") as call:
            seen.append((call.headers(), call.span_id))

    headers = [(b"traceparent", GOOD)]
    asyncio.run(drive(app, scope=http_scope(headers=headers), tracer=SpanRecorder().tracer()))

    of_call, span_id = seen[1]
    assert {"traceparent": f"00-{TRACE_HEX}-{1:016x}-01"} == seen[0]
    assert {"traceparent": f"00-{TRACE_HEX}-{span_id:016x}-01"} == of_call
