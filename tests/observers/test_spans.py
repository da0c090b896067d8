"""The whole trace of a request, span by span."""

import asyncio
from contextlib import suppress

import pytest
from inline_snapshot import snapshot
from opentelemetry.trace import TraceState
from span_recorder import MS, SpanRecorder, number_ids

import llm_trace
from llm_trace import semconv as s
from llm_trace.core.inside import Inside
from llm_trace.testing import (
    RECEIVE,
    WALL,
    FakeClock,
    Recorder,
    Server,
    drive,
    http_scope,
    response_body,
    response_start,
    scripted,
    sse,
)

TRACEPARENT = b"00-00000000000000000000000000000abc-0000000000000def-01"
STREAM = response_start("text/event-stream")
DONE = sse("[DONE]")
END = response_body()
ASKED = b'{"model": "qwen", "stream": true, "temperature": 0.5, "max_tokens": 9}'


def chunk(text="", reason=None, **more):
    """A chat chunk."""
    choices = [{"delta": {"content": text} if text else {}, "finish_reason": reason}]
    return sse({"id": "c1", "model": "qwen-1", "choices": choices, **more})


@pytest.fixture
def clock():
    """Time, standing still."""
    return FakeClock()


@pytest.fixture
def trace(clock, monkeypatch):
    """Serve one request and tell its spans."""

    def trace(*steps, body=ASKED, scope=None, server=None, latency=False, expect=None, **sink):
        number_ids(monkeypatch)
        spans = SpanRecorder(**sink)
        run = drive(
            scripted(clock, *steps),
            spans.observer(latency=latency, expect=expect),
            body=body,
            scope=scope or http_scope(),
            server=server,
            clock=clock,
            tracer=spans.tracer(),
        )
        with suppress(ValueError):
            asyncio.run(run)
        return spans.told()

    return trace


class Rag:
    """What a RAG app does, as steps: each phase is entered and left by a step of its own."""

    def __init__(self, **call):
        self.open = []
        self.call_attributes = call

    def enter(self, make):
        """A step that enters what `make` gives."""

        def step():
            self.open.append(make().__enter__())

        return step

    def leave(self):
        """Leave what was entered last."""
        self.open.pop().__exit__(None, None, None)

    def fail(self):
        """Leave it with an error."""
        error = LookupError("gone")
        self.open.pop().__exit__(LookupError, error, None)

    def mark(self, moment):
        """A step that stamps a moment of the engine."""
        return lambda: self.open[-1].mark(moment)

    def found(self):
        """Say how many documents there are."""
        self.open[-1].set(documents=4)

    def usage(self):
        """Say what the engine counted."""
        self.open[-1].usage(input_tokens=100, cached_tokens=64, output_tokens=3)

    def call(self):
        """A step that hands the request to the engine."""
        return self.enter(lambda: llm_trace.engine_call("chat", "qwen", **self.call_attributes))

    def steps(self):
        """From the body to the engine's first token."""
        return [
            3 * MS,
            llm_trace.admitted,
            self.enter(lambda: llm_trace.retrieval("wiki", top_k=5)),
            12 * MS,
            self.found,
            self.leave,
            5 * MS,
            self.call(),
            MS,
            self.mark("queued"),
            30 * MS,
            self.mark("scheduled"),
            40 * MS,
            self.mark("first_token"),
            2 * MS,
        ]


def test_a_rag_request_is_a_span_for_each_wait(trace):
    """Admission, retrieval, prepare, the engine's queue and prefill, delivery and decode.

    They tile the request under one root, which says where the first token's time went.
    """
    rag = Rag()

    spans = trace(
        *rag.steps(),
        STREAM,
        chunk("Hi"),
        10 * MS,
        chunk(" you"),
        10 * MS,
        chunk("!", "stop"),
        rag.mark("last_token"),
        rag.usage,
        rag.leave,
        MS,
        DONE,
        END,
        latency=True,
        scope=http_scope(headers=[(b"traceparent", TRACEPARENT), (b"tracestate", b"v=1")]),
        state=TraceState([("v", "1")]),
    )

    assert (
        snapshot(
            [
                {
                    "name": "admission",
                    "parent": "root",
                    "from": 0.0,
                    "to": 3.0,
                    "attributes": {
                        "llm_trace.phase": "admission",
                        "llm_trace.phase.source": "asgi",
                    },
                },
                {
                    "name": "prepare",
                    "parent": "root",
                    "from": 15.0,
                    "to": 20.0,
                    "attributes": {"llm_trace.phase": "prepare", "llm_trace.phase.source": "app"},
                },
                {
                    "name": "queue_wait",
                    "parent": "chat qwen",
                    "from": 20.0,
                    "to": 51.0,
                    "attributes": {
                        "llm_trace.phase": "queue_wait",
                        "llm_trace.phase.source": "engine",
                        "llm_trace.queue.before_engine": 0.001,
                        "llm_trace.queue.in_engine": 0.03,
                    },
                },
                {
                    "name": "prefill",
                    "parent": "chat qwen",
                    "from": 51.0,
                    "to": 91.0,
                    "attributes": {
                        "llm_trace.phase": "prefill",
                        "llm_trace.phase.source": "engine",
                        "llm_trace.prefill.cached_tokens": 64,
                        "llm_trace.prefill.computed_tokens": 36,
                        "llm_trace.start_state": "partial",
                    },
                },
                {
                    "name": "first_token",
                    "parent": "root",
                    "from": 91.0,
                    "to": 93.0,
                    "attributes": {
                        "llm_trace.phase": "first_token",
                        "llm_trace.phase.source": "asgi",
                    },
                },
                {
                    "name": "decode",
                    "parent": "root",
                    "from": 93.0,
                    "to": 113.0,
                    "attributes": {
                        "llm_trace.phase": "decode",
                        "llm_trace.phase.source": "asgi",
                        "gen_ai.usage.output_tokens": 3,
                    },
                },
                {
                    "name": "retrieval wiki",
                    "parent": "root",
                    "from": 3.0,
                    "to": 15.0,
                    "attributes": {
                        "gen_ai.data_source.id": "wiki",
                        "gen_ai.retrieval.top_k": 5,
                        "llm_trace.retrieval.documents": 4,
                        "gen_ai.operation.name": "retrieval",
                        "llm_trace.phase": "retrieval",
                        "llm_trace.phase.source": "app",
                    },
                },
                {
                    "name": "chat qwen",
                    "parent": "root",
                    "from": 20.0,
                    "to": 113.0,
                    "attributes": {
                        "gen_ai.operation.name": "chat",
                        "gen_ai.provider.name": "vllm",
                        "gen_ai.request.model": "qwen",
                        "llm_trace.phase": "engine",
                        "llm_trace.phase.source": "app",
                        "gen_ai.usage.input_tokens": 100,
                        "gen_ai.usage.output_tokens": 3,
                        "gen_ai.usage.cache_read.input_tokens": 64,
                    },
                },
                {
                    "name": "chat qwen",
                    "parent": "0xdef",
                    "kind": "SERVER",
                    "from": 0.0,
                    "to": 114.0,
                    "attributes": {
                        "http.request.method": "POST",
                        "url.path": "/v1/chat/completions",
                        "url.scheme": "http",
                        "http.response.status_code": 200,
                        "server.address": "127.0.0.1",
                        "server.port": 8000,
                        "gen_ai.operation.name": "chat",
                        "gen_ai.provider.name": "vllm",
                        "gen_ai.request.model": "qwen",
                        "gen_ai.request.max_tokens": 9,
                        "gen_ai.request.temperature": 0.5,
                        "gen_ai.request.stream": True,
                        "gen_ai.response.id": "c1",
                        "gen_ai.response.model": "qwen-1",
                        "gen_ai.response.finish_reasons": ("stop",),
                        "gen_ai.response.time_to_first_chunk": 0.093,
                        "gen_ai.usage.input_tokens": 100,
                        "gen_ai.usage.output_tokens": 3,
                        "gen_ai.usage.cache_read.input_tokens": 64,
                        "llm_trace.outcome": "ok",
                        "llm_trace.last_phase": "finish",
                        "llm_trace.start_state": "partial",
                        "llm_trace.phase.source": "app",
                        "llm_trace.ttft": 0.093,
                        "llm_trace.ttft.admission": 0.003,
                        "llm_trace.ttft.retrieval": 0.012,
                        "llm_trace.ttft.prepare": 0.005,
                        "llm_trace.ttft.queue_wait": 0.031,
                        "llm_trace.ttft.prefill": 0.04,
                        "llm_trace.ttft.first_token": 0.002,
                        "llm_trace.unattributed": 0.0,
                        "llm_trace.decode.max_gap": 0.01,
                        "llm_trace.retrieval.documents": 4,
                        "gen_ai.latency.e2e": 0.114,
                        "gen_ai.latency.time_in_queue": 0.03,
                        "gen_ai.latency.time_in_model_prefill": 0.04,
                        "gen_ai.latency.time_in_model_decode": 0.022,
                        "gen_ai.latency.time_in_model_inference": 0.062,
                        "gen_ai.latency.time_to_first_token": 0.091,
                    },
                },
            ]
        )
        == spans
    )


def test_a_plain_request_is_one_span(trace):
    """A request that is no generation is an HTTP server span and nothing else."""
    spans = trace(5 * MS, response_start("text/html"), END, scope=http_scope("/page", method="GET"))

    assert (
        snapshot(
            [
                {
                    "name": "GET",
                    "kind": "SERVER",
                    "from": 0.0,
                    "to": 5.0,
                    "attributes": {
                        "http.request.method": "GET",
                        "url.path": "/page",
                        "url.scheme": "http",
                        "http.response.status_code": 200,
                        "server.address": "127.0.0.1",
                        "server.port": 8000,
                    },
                }
            ]
        )
        == spans
    )


def test_a_request_cancelled_in_prefill_ends_there(trace):
    """The phase that the client left in is closed at its leaving; status stays unset."""
    rag = Rag()
    asked = {"type": "http.request", "body": ASKED, "more_body": False}
    server = Server(chunks=[asked, {"type": "http.disconnect"}])

    spans = trace(*rag.steps()[:-2], RECEIVE, server=server)

    assert (
        snapshot(
            [
                {
                    "name": "admission",
                    "parent": "root",
                    "from": 0.0,
                    "to": 3.0,
                    "attributes": {
                        "llm_trace.phase": "admission",
                        "llm_trace.phase.source": "asgi",
                    },
                },
                {
                    "name": "prepare",
                    "parent": "root",
                    "from": 15.0,
                    "to": 20.0,
                    "attributes": {"llm_trace.phase": "prepare", "llm_trace.phase.source": "app"},
                },
                {
                    "name": "queue_wait",
                    "parent": "chat qwen",
                    "from": 20.0,
                    "to": 51.0,
                    "attributes": {
                        "llm_trace.phase": "queue_wait",
                        "llm_trace.phase.source": "engine",
                        "llm_trace.queue.before_engine": 0.001,
                        "llm_trace.queue.in_engine": 0.03,
                    },
                },
                {
                    "name": "prefill",
                    "parent": "chat qwen",
                    "from": 51.0,
                    "to": 91.0,
                    "attributes": {
                        "llm_trace.phase": "prefill",
                        "llm_trace.phase.source": "engine",
                        "llm_trace.start_state": "unknown",
                    },
                },
                {
                    "name": "retrieval wiki",
                    "parent": "root",
                    "from": 3.0,
                    "to": 15.0,
                    "attributes": {
                        "gen_ai.data_source.id": "wiki",
                        "gen_ai.retrieval.top_k": 5,
                        "llm_trace.retrieval.documents": 4,
                        "gen_ai.operation.name": "retrieval",
                        "llm_trace.phase": "retrieval",
                        "llm_trace.phase.source": "app",
                    },
                },
                {
                    "name": "chat qwen",
                    "parent": "root",
                    "from": 20.0,
                    "to": 91.0,
                    "attributes": {
                        "gen_ai.operation.name": "chat",
                        "gen_ai.provider.name": "vllm",
                        "gen_ai.request.model": "qwen",
                        "llm_trace.phase": "engine",
                        "llm_trace.phase.source": "app",
                    },
                },
                {
                    "name": "chat qwen",
                    "kind": "SERVER",
                    "from": 0.0,
                    "to": 91.0,
                    "attributes": {
                        "http.request.method": "POST",
                        "url.path": "/v1/chat/completions",
                        "url.scheme": "http",
                        "server.address": "127.0.0.1",
                        "server.port": 8000,
                        "gen_ai.operation.name": "chat",
                        "gen_ai.provider.name": "vllm",
                        "gen_ai.request.model": "qwen",
                        "gen_ai.request.max_tokens": 9,
                        "gen_ai.request.temperature": 0.5,
                        "gen_ai.request.stream": True,
                        "llm_trace.outcome": "cancelled",
                        "llm_trace.last_phase": "prefill",
                        "llm_trace.start_state": "unknown",
                        "llm_trace.phase.source": "app",
                        "llm_trace.unattributed": 0.0,
                        "llm_trace.retrieval.documents": 4,
                    },
                },
            ]
        )
        == spans
    )


def test_chunks_of_a_prompt_are_on_its_prefill(trace, clock):
    """Their number, and each one's tokens, start after the schedule, and duration."""
    rag = Rag()

    def computed():
        for tokens, start, end in ((512, 40, 10), (88, 10, 0)):
            rag.open[-1].computed(tokens, clock.now - start * MS, clock.now - end * MS)

    spans = trace(*rag.steps()[:-2], computed, rag.mark("first_token"), STREAM, chunk("a"), DONE)
    (prefill,) = (span for span in spans if span["name"] == "prefill")

    assert (
        snapshot(
            {
                "llm_trace.phase": "prefill",
                "llm_trace.phase.source": "engine",
                "llm_trace.prefill.computed_tokens": 600,
                "llm_trace.start_state": "unknown",
                "llm_trace.prefill.chunks": 2,
                "llm_trace.prefill.chunk.tokens": (512, 88),
                "llm_trace.prefill.chunk.starts": (0.0, 0.03),
                "llm_trace.prefill.chunk.durations": (0.03, 0.01),
            }
        )
        == prefill["attributes"]
    )


def test_a_transfer_is_a_part_of_the_queue_wait(trace, clock):
    """A span of its own inside it, and its seconds on both the wait and the root."""
    rag = Rag()

    def transferred():
        rag.open[-1].transferred(clock.now - 25 * MS, clock.now - 5 * MS)

    spans = trace(
        *rag.steps()[:-4], transferred, *rag.steps()[-4:], STREAM, chunk("a"), rag.leave, DONE
    )
    by_name = {span["name"]: span for span in spans}
    transfer, wait = by_name["kv_transfer"], by_name["queue_wait"]
    names = [span["name"] for span in spans]

    assert transfer["attributes"] == {"llm_trace.phase.source": "engine"}
    assert transfer["parent"] == "queue_wait"
    assert transfer["to"] - transfer["from"] == 20
    assert wait["from"] < transfer["from"] < transfer["to"] == wait["to"] - 5
    assert names.index("kv_transfer") < names.index("queue_wait")
    for span in (wait, spans[-1]):
        assert span["attributes"]["llm_trace.queue.kv_transfer"] == 0.02


def test_a_stream_that_breaks_is_an_error_with_status_200(trace):
    """HTTP says 200, the span says ERROR and of which type."""
    root = trace(STREAM, 5 * MS, chunk("Hi"), 5 * MS, ValueError("secret"))[-1]

    told = {
        "failed": True,
        "http.response.status_code": 200,
        "error.type": "ValueError",
        "llm_trace.outcome": "error",
        "llm_trace.last_phase": "decode",
    }
    assert told == {k: v for k, v in {**root, **root["attributes"]}.items() if k in told}
    assert "secret" not in str(root)


def test_a_server_that_calls_itself_has_phases_on_the_root(clock, monkeypatch):
    """The engine of this very server has no span of its own: its facts are the root's."""
    number_ids(monkeypatch)
    sink = SpanRecorder()

    def engine():
        request = llm_trace.current()
        call = llm_trace.engine_call("chat", "qwen", **{"llm_trace.engine.tier": "mine"})
        request.adopt_call(call)
        call.begin()
        call.source = "engine"
        call.mark("queued")
        call.mark("scheduled")
        call.mark("preempted")
        clock.advance(5 * MS)
        call.mark("scheduled")
        call.mark("first_token")
        clock.advance(5 * MS)
        call.mark("last_token")
        call.usage(input_tokens=8, output_tokens=4)

    app = scripted(clock, engine, MS, response_start(), response_body(b"{}"))
    asyncio.run(drive(app, sink.observer(), body=b"{}", clock=clock, tracer=sink.tracer()))

    assert (
        snapshot(
            [
                {
                    "name": "prefill",
                    "parent": "root",
                    "from": 0.0,
                    "to": 5.0,
                    "attributes": {
                        "llm_trace.phase": "prefill",
                        "llm_trace.phase.source": "engine",
                        "llm_trace.start_state": "unknown",
                    },
                },
                {
                    "name": "decode",
                    "parent": "root",
                    "from": 5.0,
                    "to": 10.0,
                    "attributes": {
                        "llm_trace.phase": "decode",
                        "llm_trace.phase.source": "engine",
                        "gen_ai.usage.output_tokens": 4,
                        "llm_trace.preemptions": 1,
                    },
                },
                {
                    "name": "chat qwen",
                    "kind": "SERVER",
                    "from": 0.0,
                    "to": 11.0,
                    "attributes": {
                        "http.request.method": "POST",
                        "url.path": "/v1/chat/completions",
                        "url.scheme": "http",
                        "http.response.status_code": 200,
                        "server.address": "127.0.0.1",
                        "server.port": 8000,
                        "gen_ai.operation.name": "chat",
                        "gen_ai.provider.name": "vllm",
                        "gen_ai.request.model": "qwen",
                        "llm_trace.engine.tier": "mine",
                        "gen_ai.usage.input_tokens": 8,
                        "gen_ai.usage.output_tokens": 4,
                        "llm_trace.outcome": "ok",
                        "llm_trace.last_phase": "finish",
                        "llm_trace.start_state": "unknown",
                        "llm_trace.phase.source": "engine",
                        "llm_trace.unattributed": 0.0,
                        "llm_trace.preemptions": 1,
                        "llm_trace.queue.requeued": 0.005,
                    },
                },
            ]
        )
        == sink.told()
    )


def test_a_server_without_an_address_has_none(trace):
    """Behind a Unix socket there is no port to tell."""
    root = trace(STREAM, END, scope=http_scope(server=None))[-1]

    assert not [k for k in root["attributes"] if k.startswith("server.")]


def test_stamps_that_the_engine_did_not_give_have_no_latency(trace):
    """Each of the engine's own keys needs both of its stamps, one after the other."""
    rag = Rag()

    root = trace(
        MS,
        rag.call(),
        rag.mark("scheduled"),
        MS,
        rag.mark("first_token"),
        lambda: rag.open[-1].mark("queued"),
        STREAM,
        chunk("Hi"),
        rag.leave,
        DONE,
        END,
        latency=True,
    )[-1]

    latency = {k: v for k, v in root["attributes"].items() if k.startswith("gen_ai.latency")}
    assert (
        snapshot(
            {
                "gen_ai.latency.e2e": 0.002,
                "gen_ai.latency.time_in_model_prefill": 0.001,
                "gen_ai.latency.time_in_model_inference": 0.001,
                "gen_ai.latency.time_to_first_token": 0.002,
            }
        )
        == latency
    )


def test_calls_before_the_visible_one_are_generations(trace):
    """A query rewriting is a call span of its own; a wire makes it CLIENT, a fault ERROR."""
    rag = Rag()

    def over_the_wire():
        rag.open[-1].headers()

    spans = trace(
        rag.call(),
        over_the_wire,
        5 * MS,
        rag.leave,
        rag.call(),
        2 * MS,
        rag.fail,
        rag.call(),
        STREAM,
        MS,
        chunk("Hi"),
        rag.leave,
        DONE,
        END,
    )

    calls = [
        s for s in spans if s["name"] == "chat qwen" and "llm_trace.outcome" not in s["attributes"]
    ]
    assert (
        snapshot(
            [
                {
                    "name": "chat qwen",
                    "parent": "root",
                    "kind": "CLIENT",
                    "from": 0.0,
                    "to": 5.0,
                    "attributes": {
                        "gen_ai.operation.name": "chat",
                        "gen_ai.provider.name": "vllm",
                        "gen_ai.request.model": "qwen",
                        "llm_trace.phase": "generation",
                        "llm_trace.phase.source": "upstream",
                    },
                },
                {
                    "name": "chat qwen",
                    "parent": "root",
                    "from": 5.0,
                    "to": 7.0,
                    "failed": True,
                    "attributes": {
                        "gen_ai.operation.name": "chat",
                        "gen_ai.provider.name": "vllm",
                        "gen_ai.request.model": "qwen",
                        "llm_trace.phase": "generation",
                        "llm_trace.phase.source": "app",
                        "error.type": "LookupError",
                    },
                },
                {
                    "name": "chat qwen",
                    "parent": "root",
                    "from": 7.0,
                    "to": 8.0,
                    "attributes": {
                        "gen_ai.operation.name": "chat",
                        "gen_ai.provider.name": "vllm",
                        "gen_ai.request.model": "qwen",
                        "llm_trace.phase": "engine",
                        "llm_trace.phase.source": "app",
                    },
                },
            ]
        )
        == calls
    )


def test_a_phase_of_the_app_is_a_span_by_its_name(trace):
    """With its attributes; one that raised is ERROR, one over the wire CLIENT, an open one ends."""
    rag = Rag()

    spans = trace(
        rag.enter(lambda: llm_trace.phase("rerank", **{"server.address": "db"})),
        MS,
        rag.enter(llm_trace.retrieval),
        MS,
        rag.fail,
        rag.leave,
        rag.enter(lambda: llm_trace.phase("never left")),
        MS,
        STREAM,
        END,
    )

    assert (
        snapshot(
            [
                {
                    "name": "rerank",
                    "parent": "root",
                    "kind": "CLIENT",
                    "from": 0.0,
                    "to": 2.0,
                    "attributes": {
                        "server.address": "db",
                        "llm_trace.phase": "rerank",
                        "llm_trace.phase.source": "app",
                    },
                },
                {
                    "name": "retrieval",
                    "parent": "rerank",
                    "from": 1.0,
                    "to": 2.0,
                    "failed": True,
                    "attributes": {
                        "gen_ai.operation.name": "retrieval",
                        "llm_trace.phase": "retrieval",
                        "llm_trace.phase.source": "app",
                        "error.type": "LookupError",
                    },
                },
                {
                    "name": "never left",
                    "parent": "root",
                    "from": 2.0,
                    "to": 3.0,
                    "attributes": {
                        "llm_trace.phase": "never left",
                        "llm_trace.phase.source": "app",
                    },
                },
            ]
        )
        == spans[:3]
    )


def test_attributes_are_made_safe_everywhere(trace):
    """Root, phases and calls take any value that an app gives."""
    rag = Rag(seen={1}, score=float("nan"), name="x" * 5000)
    big = 2**70

    spans = trace(
        lambda: llm_trace.annotate(big=big, none=None, bad="\ud800", kinds={"a"}),
        rag.enter(lambda: llm_trace.phase("rerank", big=big, none=None)),
        rag.leave,
        rag.call(),
        MS,
        rag.leave,
        STREAM,
        END,
    )

    own = [
        {k: v if len(str(v)) < 100 else len(v) for k, v in s["attributes"].items() if "." not in k}
        for s in spans
    ]
    assert (
        snapshot(
            [
                {"big": "1180591620717411303424"},
                {"seen": ("1",), "name": 1024},
                {"big": "1180591620717411303424", "bad": "?", "kinds": ("a",)},
            ]
        )
        == own
    )


def test_the_number_of_spans_does_not_depend_on_chunks(trace):
    """A thousand chunks make as many spans as two."""
    few = trace(STREAM, MS, chunk("a"), MS, chunk("b"), DONE, END)
    many = trace(STREAM, MS, *[chunk("a"), MS] * 1000, chunk("b"), DONE, END)

    assert [s["name"] for s in few] == [s["name"] for s in many]


@pytest.mark.parametrize("why", ["unsampled", "no provider by then"])
def test_an_unsampled_request_has_no_spans(clock, why):
    """Its record is the same as ever."""
    sink, recorder = SpanRecorder(sampled=why != "unsampled"), Recorder()
    observer = sink.observer()
    if why != "unsampled":
        observer._find_sink = lambda: None
    app = scripted(clock, STREAM, MS, chunk("a"), DONE, END)

    asyncio.run(drive(app, observer, recorder, body=ASKED, clock=clock, tracer=sink.tracer()))

    assert ([], MS) == (sink.spans, recorder.record.ttft)


def test_without_an_identity_there_are_no_spans(clock):
    """A request that no tracer knew makes none."""
    sink = SpanRecorder()

    asyncio.run(drive(scripted(clock, STREAM, END), sink.observer(), clock=clock))

    assert sink.spans == []


def test_an_engine_behind_a_wire_that_told_its_phases(trace):
    """Network, queue and prefill are children of the call, and their source is `upstream`."""
    rag = Rag()

    def told():
        """The last attempt was sent at the hand-off, and the engine's account came."""
        call = rag.open[-1]
        call.source, call.sent = "upstream", call.handed_off
        call.inside = Inside({s.QUEUE_WAIT: 30 * MS, s.PREFILL: 10 * MS, s.PREPARE: 5 * MS})

    steps = (3 * MS, rag.call(), 50 * MS, rag.mark("first_token"), told, STREAM, MS, chunk("a"))
    spans = trace(*steps, rag.leave, DONE, END)
    by_name = {span["name"]: span for span in spans}

    parts = [by_name[name] for name in ("network", "queue_wait", "prefill")]
    assert ["CLIENT"] == [span["kind"] for span in spans if span["name"] == parts[0]["parent"]][:1]
    assert [(5, "upstream"), (30, "upstream"), (10, "upstream")] == [
        (span["to"] - span["from"], span["attributes"][s.PHASE_SOURCE]) for span in parts
    ]


@pytest.mark.parametrize(("expected", "said"), [(0.25, {s.EXPECTED_TTFT: 0.25}), (None, {})])
def test_a_root_says_what_a_benchmark_expects_of_it(trace, expected, said):
    """Where there is a benchmark, and it knows such a request."""
    root = trace(STREAM, chunk("Hi"), DONE, END, expect=lambda _record: expected)[-1]

    assert said == {k: v for k, v in root["attributes"].items() if k == s.EXPECTED_TTFT}


class Later:
    """An object of the app that says something else each time it is read."""

    def __init__(self):
        self.read = 0

    def __str__(self):
        self.read += 1
        return f"read {self.read}"


def test_objects_of_the_app_are_read_before_its_request_ends(clock):
    """Spans may be made later and elsewhere; what the app gave is read once, on its own thread."""
    queued, said, rag = [], Later(), Rag(of=Later())
    sink = SpanRecorder()
    sink.emit = queued.append
    steps = (
        lambda: llm_trace.annotate(who=said),
        rag.enter(lambda: llm_trace.phase("rerank", by=Later())),
        rag.leave,
        rag.enter(lambda: llm_trace.engine_call("chat", "m", of=Later())),
        rag.leave,
        *(STREAM, chunk("a"), DONE, END),
    )
    app = scripted(clock, *steps)
    asyncio.run(drive(app, sink.observer(), body=ASKED, clock=clock, tracer=sink.tracer()))
    (made,) = queued

    assert said.read == 1
    for _ in range(2):
        values = {key: v for span in made for key, v in span.attributes.items()}
        assert {values[key] for key in ("who", "by", "of")} == {"read 1"}


class Lagging:
    """An event loop that was blocked for 80 ms."""

    def longest(self, since, now):
        """Say so."""
        return 80 * MS


def test_what_was_neither_app_nor_engine_is_on_the_root(trace, clock, monkeypatch):
    """The way to us, the blocked loop and the client that did not read, each by itself."""

    class Slow(Server):
        """A client that holds the first token back for 30 ms, and the next message for 5."""

        async def send(self, message):
            """Take a message."""
            wait = {1: 30 * MS, 2: 5 * MS}.get(len(self.sent))
            if wait:
                await asyncio.sleep(0)
                clock.advance(wait)
            await super().send(message)

    monkeypatch.setattr("llm_trace.asgi.middleware.lag_here", lambda *_: Lagging())
    stamp = b"t=%d" % ((WALL - 120 * MS) // MS)
    spans = trace(
        *(STREAM, chunk("a"), chunk("b"), END),
        scope=http_scope(headers=[(b"x-request-start", stamp)]),
        server=Slow(ASKED),
    )

    root = spans[-1]["attributes"]
    assert {
        "llm_trace.edge": 0.12,
        "llm_trace.event_loop.max_lag": 0.08,
        "llm_trace.send_wait": 0.03,
        "llm_trace.send_wait.total": 0.035,
    } == {k: v for k, v in root.items() if k.split(".")[1] in {"edge", "event_loop", "send_wait"}}


@pytest.mark.parametrize("value", [("a", "b"), object()])
def test_the_visible_call_is_known_whatever_the_app_says_of_it(trace, value):
    """Values that are settled before the export leave the call the one whose tokens were seen."""
    rag = Rag(said=value)
    spans = trace(rag.call(), MS, rag.mark("first_token"), STREAM, chunk("a"), rag.leave, DONE, END)

    (call,) = [span for span in spans if "said" in span["attributes"]]
    assert s.ENGINE == call["attributes"][s.PHASE]
