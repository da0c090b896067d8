"""One exchange, watched: what passes is untouched, what is told of it is exact."""

import asyncio
import contextvars
import gc
import gzip
import json
import logging
import random
import weakref
from bisect import bisect_left
from collections import Counter
from contextlib import suppress
from copy import deepcopy
from functools import partial
from http import HTTPStatus

import pytest
from inline_snapshot import snapshot
from starlette.background import BackgroundTask
from starlette.responses import JSONResponse, StreamingResponse

import llm_trace
from llm_trace.asgi import exchange, reply
from llm_trace.asgi.gaps import BOUNDS_NS
from llm_trace.asgi.sse import TokenDetector
from llm_trace.core import faults
from llm_trace.core.identity import TraceIdentity
from llm_trace.core.tracer import NoTracer
from llm_trace.testing import (
    RECEIVE,
    FakeClock,
    Recorder,
    Server,
    drive,
    http_scope,
    response_body,
    response_start,
    scripted,
    sse,
    watched,
)

MS = 1_000_000
ASKED = b'{"model": "m", "stream": true}'
STREAM = response_start("text/event-stream")
DONE = sse("[DONE]")
END = response_body()


def delta(**fields):
    """A chat chunk with this delta."""
    return sse({"id": "c1", "model": "m-1", "choices": [{"delta": fields, "finish_reason": None}]})


def usage(**counts):
    """A chat chunk with usage alone."""
    return sse({"choices": [], "usage": counts})


STOP = sse({"choices": [{"delta": {}, "finish_reason": "stop"}]})
ABORT = sse({"choices": [{"delta": {}, "finish_reason": "abort"}]})
GIVEN_UP = b'{"choices": [{"message": {"content": "Hi"}, "finish_reason": "abort"}]}'

FAILED = b'{"object": "response", "status": "failed", "error": {"code": "server_error"}}'
LIMITED = b'{"error": {"message": "Too many", "code": 429}}'


class LaterCall:
    """An engine call that a step of the app makes."""

    def begin(self):
        """Hand the request to the engine."""
        self.call = llm_trace.engine_call("chat", "m").__enter__()

    def end(self):
        """The engine returned."""
        self.call.end()


def told(record):
    """What a record says, in ms, without what it does not know."""
    ms = {name: ns / MS for name, ns in record.phases.items()}
    facts = {
        "outcome": record.outcome,
        "error": record.error_type,
        "status": record.http.status,
        "ttft": record.ttft and record.ttft / MS,
        "answer": record.first_answer and (record.first_answer - record.received) / MS,
        "phases": ms,
        "last": record.last_phase,
        "model": record.model,
        "usage": {k: v for k, v in record.usage._asdict().items() if v is not None},
        "response": {k: v for k, v in record.response.items() if v is not None},
        "gaps": record.gaps and sum(record.gaps.counts),
        "observable": record.tokens_observable,
        "streamed": record.streamed,
    }
    return {k: v for k, v in facts.items() if v not in (None, {}, 0)}


@pytest.fixture
def clock():
    """Time, standing still."""
    return FakeClock()


@pytest.fixture
def serve(clock):
    """Serve one request with an app of steps; the record, told."""

    def serve(*steps, body=ASKED, reads=True, **more):
        recorder = Recorder()
        asyncio.run(
            drive(scripted(clock, *steps, reads=reads), recorder, body=body, clock=clock, **more)
        )
        return told(recorder.record)

    return serve


@pytest.fixture(autouse=True)
def counted(monkeypatch):
    """Counters and the memory of what was logged, as in a new process."""
    monkeypatch.setattr(faults, "internal", Counter())
    monkeypatch.setattr(faults, "dropped", Counter())
    monkeypatch.setattr(faults, "_logged", set())


# --- what passes is untouched -------------------------------------------------------------------


class Tally:
    """Keeps the identity of what passes in both directions."""

    def __init__(self, *inbound):
        self.inbound = [dict(m) for m in inbound]
        self.given, self.got = [], []

    async def receive(self):
        """Give the next message."""
        message = self.inbound[min(len(self.given), len(self.inbound) - 1)]
        self.given.append(id(message))
        return message

    async def send(self, message):
        """Keep a message."""
        self.got.append(message)


def passing(wrap, inbound, outbound, reads):
    """What server and app see of each other, behind `wrap`."""
    tally, seen = Tally(*inbound), []

    async def app(_scope, receive, send):
        seen.extend([id(await receive()) for _ in range(reads)])
        for message in outbound:
            await send(message)

    asyncio.run(wrap(app)(http_scope(), tally.receive, tally.send))
    assert tally.given == seen
    return [inbound.index(m) for m in tally.inbound[: len(seen)]], [id(m) for m in tally.got]


REQUEST = (
    {"type": "http.request", "body": b'{"model":', "more_body": True},
    {"type": "http.request", "body": memoryview(b' "m"'), "more_body": True},
    {"type": "http.request", "body": bytearray(b"}")},
    {"type": "http.disconnect"},
)

ANSWERS = {
    "stream": [STREAM, delta(role="assistant"), delta(content="a"), delta(content="b"), DONE, END],
    "document": [response_start(), response_body(b'{"id": "x"}')],
    "no body": [response_start(status=204), {"type": "http.response.body"}],
    "text": [response_start("text/plain"), response_body(b"hi")],
    "views": [
        STREAM,
        response_body(memoryview(delta(content="a")["body"]), more=True),
        response_body(bytearray(delta(content="b")["body"]), more=True),
        END,
    ],
    "early hints": [{"type": "http.response.early_hint", "links": []}, STREAM, END],
    "path": [response_start(), {"type": "http.response.pathsend", "path": "/x"}],
    "trailers": [
        {**STREAM, "trailers": True},
        delta(content="a"),
        END,
        {"type": "http.response.trailers", "headers": [], "more_trailers": True},
        {"type": "http.response.trailers", "headers": []},
    ],
}


@pytest.mark.parametrize("reads", range(5))
@pytest.mark.parametrize("kind", ANSWERS)
def test_messages_pass_as_the_same_objects_in_the_same_order(kind, reads):
    """Server and app exchange what they would without us, message for message."""
    outbound = [dict(m) for m in ANSWERS[kind]]
    recorder = Recorder()

    bare = passing(lambda app: app, REQUEST, outbound, reads)
    behind = passing(lambda app: watched(app, recorder), REQUEST, outbound, reads)

    assert bare == behind
    assert ANSWERS[kind] == outbound
    assert len(recorder.records) == 1


@pytest.mark.parametrize("asks", [(), ((b"x-llm-trace-ledger", b"1"),)])
def test_headers_that_can_be_read_once_reach_server_and_record(clock, asks):
    """Frameworks may give an iterator: the client gets every header, and the stream is watched."""
    recorder, server = Recorder(), Server(ASKED)
    headers = [(b"content-type", b"text/event-stream"), (b"x-own", b"1")]

    async def send(message):
        if "headers" in message:
            message = {**message, "headers": list(message["headers"])}
        await server.send(message)

    async def app(_scope, receive, send):
        await receive()
        await send({**STREAM, "headers": iter(headers)})
        await send(delta(content="Hi"))
        await send(DONE)
        await send(END)

    serving = watched(app, recorder, clock=clock)
    asyncio.run(serving(http_scope(headers=asks), server.receive, send))

    assert [*headers, *asks] == server.sent[0]["headers"]
    assert recorder.record.streamed


def test_a_body_that_the_app_refuses_is_never_asked_for(clock):
    """An app that answers 401 without reading makes no receive call, so no `100 Continue`."""
    server = Server(b"secret")
    app = scripted(clock, response_start(status=401), END, reads=False)

    asyncio.run(drive(app, Recorder(), server=server, clock=clock))

    assert server.received == 0


# --- the first token ----------------------------------------------------------------------------


def test_roles_comments_and_empty_chunks_are_no_tokens(serve):
    """TTFT is the first generated text, whatever came before it."""
    record = serve(
        STREAM,
        10 * MS,
        delta(role="assistant", content=""),
        10 * MS,
        response_body(b": ping\n\n", more=True),
        10 * MS,
        delta(content=""),
        20 * MS,
        delta(content="Hi"),
        5 * MS,
        delta(content=" you"),
        STOP,
        usage(prompt_tokens=7, completion_tokens=2),
        DONE,
        END,
    )

    assert (
        snapshot(
            {
                "outcome": "ok",
                "status": 200,
                "ttft": 50.0,
                "answer": 50.0,
                "phases": {"unattributed": 50.0, "decode": 5.0},
                "last": "decode",
                "model": "m",
                "usage": {"input_tokens": 7, "output_tokens": 2},
                "response": {
                    "gen_ai.response.id": "c1",
                    "gen_ai.response.model": "m-1",
                    "gen_ai.response.finish_reasons": ("stop",),
                    "gen_ai.response.time_to_first_chunk": 0.01,
                },
                "gaps": 1,
                "observable": True,
                "streamed": True,
            }
        )
        == record
    )


def test_a_comment_is_no_chunk_of_the_answer(serve):
    """Servers send them to keep a connection alive while the request waits."""
    ping = response_body(b": ping\n\n", more=True)
    role = delta(role="assistant", content="")

    record = serve(STREAM, 10 * MS, ping, 20 * MS, role, 5 * MS, delta(content="Hi"), DONE, END)
    empty = serve(STREAM, 10 * MS, ping, DONE, END)

    assert record["response"]["gen_ai.response.time_to_first_chunk"] == 0.03
    assert "response" not in empty


def test_reasoning_is_a_token_and_no_answer(serve):
    """The first answer is told apart from the first token; gaps run through both."""
    record = serve(
        STREAM,
        10 * MS,
        delta(reasoning_content="hm"),
        10 * MS,
        delta(reasoning="hm"),
        20 * MS,
        delta(content="Hi"),
        5 * MS,
        delta(content="!"),
        DONE,
        END,
    )

    assert (
        snapshot(
            {
                "outcome": "ok",
                "status": 200,
                "ttft": 10.0,
                "answer": 40.0,
                "phases": {"unattributed": 10.0, "decode": 35.0},
                "last": "decode",
                "model": "m",
                "response": {
                    "gen_ai.response.id": "c1",
                    "gen_ai.response.model": "m-1",
                    "gen_ai.response.time_to_first_chunk": 0.01,
                },
                "gaps": 3,
                "observable": True,
                "streamed": True,
            }
        )
        == record
    )


def test_a_stream_of_reasoning_alone_has_no_answer(serve):
    """Tokens that are all reasoning give a TTFT and no time to first answer."""
    record = serve(STREAM, 10 * MS, delta(reasoning="a"), MS, delta(reasoning="b"), DONE, END)

    assert (
        snapshot(
            {
                "outcome": "ok",
                "status": 200,
                "ttft": 10.0,
                "phases": {"unattributed": 10.0, "decode": 1.0},
                "last": "decode",
                "model": "m",
                "response": {
                    "gen_ai.response.id": "c1",
                    "gen_ai.response.model": "m-1",
                    "gen_ai.response.time_to_first_chunk": 0.01,
                },
                "gaps": 1,
                "observable": True,
                "streamed": True,
            }
        )
        == record
    )


def test_several_tokens_in_one_message_are_one_chunk(serve):
    """Events that came together have one stamp, so there is one gap between two messages."""
    both = response_body(delta(content="a")["body"] + delta(content="b")["body"], more=True)

    record = serve(STREAM, 10 * MS, both, 10 * MS, both, DONE, END)

    assert (10.0, 1) == (record["ttft"], record["gaps"])


def test_an_event_split_over_messages_counts_when_it_is_whole(serve):
    """The message that completes the event has the stamp."""
    data = delta(content="Hi")["body"]

    record = serve(
        STREAM,
        10 * MS,
        response_body(data[:30], more=True),
        10 * MS,
        response_body(data[30:], more=True),
        DONE,
        END,
    )

    assert record["ttft"] == 20.0


def test_a_last_event_without_its_blank_line_counts(serve):
    """The end of the response ends the event, too."""
    data = delta(content="Hi")["body"].rstrip()

    record = serve(STREAM, 10 * MS, response_body(data))

    assert (10.0, "truncated") == (record["ttft"], record["outcome"])


def test_compressed_tokens_are_not_observable(serve):
    """Behind a compressor there is no TTFT rather than a wrong one; the request asked for a stream.

    The answer is not parsed, so nothing in it is malformed either.
    """
    packed = gzip.compress(delta(content="Hi")["body"])
    start = response_start("text/event-stream", content_encoding="gzip")

    record = serve(start, 10 * MS, response_body(packed, more=True), MS, END)

    assert (
        snapshot(
            {
                "outcome": "ok",
                "status": 200,
                "phases": {"unattributed": 11.0},
                "last": "unattributed",
                "model": "m",
            }
        )
        == record
    )


def test_a_compressed_document_is_not_read(serve):
    """A JSON answer in gzip has no usage."""
    packed = gzip.compress(b'{"usage": {"prompt_tokens": 3}}')
    start = response_start(content_encoding="gzip")

    record = serve(start, response_body(packed), body=b"{}")

    assert snapshot({"outcome": "ok", "status": 200, "last": "admission"}) == record


def overwriting(app):
    """A layer outside of us that writes into the messages that we passed on, as compressors do."""

    async def overwrite(scope, receive, send):
        async def overwritten(message):
            await send(dict(message))
            if message["type"] == "http.response.start":
                message["headers"].append((b"content-encoding", b"gzip"))
            else:
                message.update(body=b"\x1f\x8b", more_body=True)

        await app(scope, receive, overwritten)

    return overwrite


def test_what_a_layer_outside_makes_of_a_message_is_not_what_the_app_sent():
    """A compressor writes into the very objects; tokens and the end are seen all the same."""
    clock, recorder = FakeClock(), Recorder()
    steps = (STREAM, delta(content="a"), MS, delta(content="b"), MS, STOP, END)
    app = scripted(clock, *deepcopy(steps))
    server = Server(b'{"stream": true}')

    traced = overwriting(watched(app, recorder, clock=clock))
    asyncio.run(traced(http_scope(), server.receive, server.send))

    record = recorder.record
    assert ("ok", 0, MS) == (record.outcome, record.ttft, record.gaps.total)
    assert record.tokens_observable


def test_identity_is_no_encoding(serve):
    """`content-encoding: identity` hides nothing."""
    start = response_start("text/event-stream", content_encoding="identity")

    record = serve(start, MS, delta(content="Hi"), DONE, END)

    assert record["ttft"] == 1.0


LINE = json.dumps({"model": "m", "message": {"content": "Hi"}, "done": False}).encode() + b"\n"
LAST = json.dumps({"done": True, "done_reason": "stop", "eval_count": 2}).encode() + b"\n"


def test_lines_of_json_are_a_stream(serve):
    """NDJSON has tokens, finish and usage as server-sent events have."""
    record = serve(
        response_start("application/x-ndjson"),
        10 * MS,
        response_body(LINE, more=True),
        10 * MS,
        response_body(LINE, more=True),
        response_body(LAST),
        scope=http_scope("/api/chat"),
    )

    assert (
        snapshot(
            {
                "outcome": "ok",
                "status": 200,
                "ttft": 10.0,
                "answer": 10.0,
                "phases": {"unattributed": 10.0, "decode": 10.0},
                "last": "decode",
                "model": "m",
                "usage": {"output_tokens": 2},
                "response": {
                    "gen_ai.response.model": "m",
                    "gen_ai.response.finish_reasons": ("stop",),
                    "gen_ai.response.time_to_first_chunk": 0.01,
                },
                "gaps": 1,
                "observable": True,
                "streamed": True,
            }
        )
        == record
    )


def test_text_is_generated_on_a_declared_route(serve):
    """On a route of generation every piece of text is a token, and its end needs no terminator."""
    record = serve(
        response_start("text/plain; charset=utf-8"),
        10 * MS,
        response_body(b"Hi", more=True),
        10 * MS,
        response_body(b" you", more=True),
        END,
        scope=http_scope("/ask"),
        settings={"routes": {"/ask": "chat"}},
    )

    assert (
        snapshot(
            {
                "outcome": "ok",
                "status": 200,
                "ttft": 10.0,
                "answer": 10.0,
                "phases": {"unattributed": 10.0, "decode": 10.0},
                "last": "decode",
                "model": "m",
                "response": {"gen_ai.response.time_to_first_chunk": 0.01},
                "gaps": 1,
                "observable": True,
                "streamed": True,
            }
        )
        == record
    )


def test_text_of_any_other_route_is_only_text(serve):
    """A page is no generation: no operation, no tokens."""
    record = serve(
        response_start("text/plain"),
        10 * MS,
        response_body(b"Hi", more=True),
        END,
        scope=http_scope("/readme"),
    )

    assert (
        snapshot(
            {
                "outcome": "ok",
                "status": 200,
                "phases": {"unattributed": 10.0},
                "last": "unattributed",
                "model": "m",
                "observable": True,
            }
        )
        == record
    )


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/assistant"])
@pytest.mark.parametrize(
    ("status", "outcome"), [(307, "ok"), (404, "rejected"), (500, "error"), (504, "timeout")]
)
def test_text_that_says_what_went_wrong_is_no_token(serve, status, outcome, path):
    """A page of Starlette's about an error was not generated, whatever the route and its calls."""
    call, end = LaterCall(), response_body(b"Internal Server Error")
    start = response_start("text/plain", status)

    record = serve(call.begin, call.end, start, MS, end, scope=http_scope(path))

    assert outcome == record["outcome"]
    assert not {"ttft", "answer", "streamed", "response"} & record.keys()


@pytest.mark.parametrize("opens", ["before the response", "inside the response"])
def test_text_around_an_engine_call_is_generated(serve, opens):
    """A call makes text tokens, also where a generator makes it after the response began."""
    call = LaterCall()
    start, text = response_start("text/plain"), response_body(b"Hi", more=True)
    before = [call.begin, start] if opens.startswith("before") else [start, call.begin]

    record = serve(
        *before, 10 * MS, text, 5 * MS, text, call.end, END, scope=http_scope("/assistant")
    )

    assert (10.0, 1, "ok") == (record["ttft"], record["gaps"], record["outcome"])


def test_text_before_the_engine_call_is_no_token(serve):
    """What the app says itself while it works is not generated."""
    call = LaterCall()
    text = response_body(b"Searching", more=True)

    record = serve(
        response_start("text/plain"),
        5 * MS,
        text,
        call.begin,
        5 * MS,
        text,
        call.end,
        END,
        scope=http_scope("/assistant"),
    )

    assert record["ttft"] == 10.0


DOCUMENT = {
    "id": "c1",
    "model": "m-1",
    "choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}],
    "usage": {
        "prompt_tokens": 10,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 4},
    },
}


def test_an_answer_in_one_piece_has_facts_and_no_ttft(serve):
    """Usage, id, model and finish reasons are read; no first token is claimed."""
    record = serve(
        10 * MS,
        response_start(),
        response_body(json.dumps(DOCUMENT).encode()),
        body=b'{"model": "m"}',
    )

    assert (
        snapshot(
            {
                "outcome": "ok",
                "status": 200,
                "phases": {"unattributed": 10.0},
                "last": "unattributed",
                "model": "m",
                "usage": {"input_tokens": 10, "output_tokens": 3, "cached_tokens": 4},
                "response": {
                    "gen_ai.response.id": "c1",
                    "gen_ai.response.model": "m-1",
                    "gen_ai.response.finish_reasons": ("stop",),
                },
                "observable": True,
            }
        )
        == record
    )


def test_a_client_that_names_no_model_gets_the_one_that_answers(serve):
    """Engines do not insist on a name, and metrics want one."""
    document = response_body(json.dumps(DOCUMENT).encode())
    record = serve(10 * MS, response_start(), document, body=b"{}")

    assert record["model"] == "m-1"


def test_a_document_over_the_limit_is_not_read(serve):
    """An answer larger than the bound passes and tells nothing."""
    record = serve(
        response_start(),
        response_body(json.dumps(DOCUMENT).encode()),
        body=b"{}",
        settings={"max_body_bytes": 20},
    )

    assert (
        snapshot({"outcome": "ok", "status": 200, "last": "admission", "observable": True})
        == record
    )


def test_a_document_that_is_no_json_is_not_read(serve):
    """What calls itself JSON and is none tells nothing."""
    record = serve(response_start(), response_body(b"oops"), body=b"{}")

    assert (
        snapshot({"outcome": "ok", "status": 200, "last": "admission", "observable": True})
        == record
    )


def test_an_error_document_for_a_stream_has_no_ttft(serve):
    """`stream: true` answered with JSON 400 is rejected, with no first token."""
    error = json.dumps({"error": {"message": "no", "code": 400}}).encode()

    record = serve(10 * MS, response_start(status=400), response_body(error))

    assert (
        snapshot(
            {
                "outcome": "rejected",
                "error": "400",
                "status": 400,
                "phases": {"admission": 10.0},
                "last": "admission",
                "model": "m",
                "observable": True,
            }
        )
        == record
    )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (ASKED, "m"),
        (b'{"model": "m"} trailing', "m-1"),
        (b"\xff\xfe", "m-1"),
        (b"[1]", "m-1"),
        (b"[" * 100_000, "m-1"),
        (b'{"model": 5}', "m-1"),
        (b'{"model": "m", "messages": "' + b"x" * 70_000 + b'"}', "m-1"),
        (b"", "m-1"),
    ],
)
def test_of_a_body_that_cannot_be_read_the_answer_tells_the_model(serve, body, expected):
    """Too large, not JSON, not an object: the request goes on, and who answers says by what."""
    record = serve(STREAM, MS, delta(content="a"), DONE, END, body=body)

    assert (1.0, expected) == (record["ttft"], record.get("model"))


def test_a_generation_is_known_by_its_tokens(clock):
    """A stream of chat chunks on any path is a chat."""
    recorder = Recorder()
    app = scripted(clock, STREAM, delta(content="a"), DONE, END)

    asyncio.run(drive(app, recorder, scope=http_scope("/ask"), clock=clock))

    assert recorder.record.operation == "chat"


@pytest.mark.parametrize(
    ("method", "path", "operation"),
    [
        ("GET", "/v1/responses/resp_1", None),
        ("GET", "/v1/responses/resp_1/", None),
        ("POST", "/v1/responses/resp_1", "chat"),
        ("GET", "/ask", "chat"),
    ],
)
def test_an_answer_that_is_played_again_is_no_generation(clock, method, path, operation):
    """As servers keep those of Responses; elsewhere a browser may ask for a stream by GET."""
    recorder = Recorder()
    app = scripted(clock, STREAM, delta(content="a"), DONE, END)

    asyncio.run(drive(app, recorder, scope=http_scope(path, method=method), clock=clock))

    assert recorder.record.operation == operation


@pytest.mark.parametrize("kind", ["content", "reasoning"])
def test_every_gap_is_in_its_bucket(clock, kind):
    """However the lengths of gaps change in a stream, each is counted where it belongs."""
    chosen, recorder = random.Random(11), Recorder()  # noqa: S311
    near = [at + by for at in BOUNDS_NS[:12] for by in (-1, 0, 1)] + [0]
    gaps = [chosen.choice(near) for _ in range(400)]
    gaps = [gap for gap in gaps for _ in range(chosen.randrange(1, 4))]
    steps = [step for gap in gaps for step in (gap, delta(**{kind: "a"}))]
    app = scripted(clock, STREAM, delta(**{kind: "a"}), *steps, MS, DONE, END)

    asyncio.run(drive(app, recorder, body=ASKED, clock=clock))

    expected = Counter(bisect_left(BOUNDS_NS, gap) for gap in gaps)
    found = recorder.record.gaps
    assert expected == Counter({cell: n for cell, n in enumerate(found.counts) if n})
    assert (sum(gaps), max(gaps)) == (found.total, found.longest)


def test_what_comes_after_the_body_is_no_part_of_it(serve):
    """A server that says again that the body is over changes nothing."""
    asked = {"type": "http.request", "body": ASKED, "more_body": False}

    record = serve(
        RECEIVE, STREAM, MS, delta(content="a"), DONE, END, server=Server(chunks=[asked, asked])
    )

    assert ("m", 1.0) == (record["model"], record["ttft"])


# --- how it ends --------------------------------------------------------------------------------

TOKENS = (STREAM, 10 * MS, delta(content="a"), 10 * MS, delta(content="b"))


def left():
    """A server whose client leaves: it gives a disconnect as soon as it is asked."""
    asked = {"type": "http.request", "body": ASKED, "more_body": False}
    return Server(chunks=[asked, {"type": "http.disconnect"}])


class BrokenPipe(Server):
    """The connection breaks at the third message of the response."""

    async def send(self, message):
        """Fail, as servers of ASGI 2.4 do."""
        await super().send(message)
        if len(self.sent) == 3:
            raise BrokenPipeError


def ending(clock, *steps, server=None, raises=None):
    """How a request with these steps ended: outcome, error type, status, last phase."""
    recorder = Recorder()
    middleware = watched(scripted(clock, *steps), recorder, clock=clock)
    server = server or Server(ASKED)
    run = middleware(http_scope(), server.receive, server.send)
    if raises is None:
        asyncio.run(run)
    else:
        with pytest.raises(raises):
            asyncio.run(run)
    live = middleware._dispatch.live
    record = recorder.record
    assert not live
    return record.outcome, record.error_type, record.http.status, record.last_phase


@pytest.mark.parametrize(
    ("steps", "raises", "expected"),
    [
        ((*TOKENS, STOP, DONE, END), None, ("ok", None, 200, "decode")),
        ((*TOKENS, STOP, END), None, ("ok", None, 200, "decode")),
        ((*TOKENS, DONE, END), None, ("ok", None, 200, "decode")),
        ((*TOKENS, END), None, ("truncated", "truncated", 200, "decode")),
        ((*TOKENS, ABORT, DONE, END), None, ("error", "abort", 200, "decode")),
        ((response_start(), response_body(GIVEN_UP)), None, ("error", "abort", 200, None)),
        ((response_start(), response_body(FAILED)), None, ("error", "server_error", 200, None)),
        ((response_start(), response_body(LIMITED)), None, ("rejected", "429", 200, None)),
        ((response_start(status=400), response_body(FAILED)), None, ("rejected", "400", 400, None)),
        (TOKENS, None, ("truncated", "truncated", 200, "decode")),
        ((STREAM, delta(role="assistant"), MS, END), None, ("truncated", "truncated", 200, None)),
        (
            (STREAM, delta(role="assistant"), MS, DONE, END),
            None,
            ("truncated", "truncated", 200, None),
        ),
        ((STREAM, delta(role="assistant"), STOP, DONE, END), None, ("ok", None, 200, None)),
        ((STREAM, MS, DONE, END), None, ("ok", None, 200, None)),
        ((STREAM, MS, END), None, ("ok", None, 200, None)),
        (
            (*TOKENS, sse({"error": {"type": "overloaded_error"}}), DONE, END),
            None,
            ("error", "overloaded_error", 200, "decode"),
        ),
        (
            (*TOKENS, sse({"error": {"code": "timeout"}}), END),
            None,
            ("timeout", "timeout", 200, "decode"),
        ),
        ((*TOKENS, ValueError()), ValueError, ("error", "ValueError", 200, "decode")),
        ((MS, KeyError()), KeyError, ("error", "KeyError", 0, None)),
        ((MS, TimeoutError()), TimeoutError, ("timeout", "TimeoutError", 0, None)),
        ((*TOKENS, asyncio.CancelledError()), asyncio.CancelledError, None),
        ((MS,), None, ("truncated", "truncated", 0, None)),
        *(
            ((MS, response_start(status=status), END), None, (outcome, str(status), status, None))
            for status, outcome in [
                (400, "rejected"),
                (401, "rejected"),
                (404, "rejected"),
                (408, "timeout"),
                (429, "rejected"),
                (500, "error"),
                (503, "rejected"),
                (504, "timeout"),
            ]
        ),
    ],
)
def test_every_ending_has_one_record(clock, steps, raises, expected):
    """However a request ends, one record says how, the app's exception passes, nothing is live."""
    outcome, error, status, last = ending(clock, *steps, raises=raises)

    if expected is None:
        expected = ("cancelled", None, 200, "decode")
    assert expected == (outcome, error, status, last if expected[3] else None)


def test_an_error_in_a_document_that_is_no_generation_is_the_apps_own(clock):
    """An app's form may have a field of that name."""
    recorder = Recorder()
    app = scripted(clock, response_start(), response_body(b'{"error": "no name"}'))

    asyncio.run(drive(app, recorder, scope=http_scope("/form"), clock=clock))

    assert ("ok", None) == (recorder.record.outcome, recorder.record.error_type)


def test_a_status_given_as_a_member_of_its_enum_is_its_number(clock):
    """Its name would be the error's type where an enum prints it, as in Python 3.10."""
    recorder = Recorder()
    app = scripted(clock, response_start(status=HTTPStatus.SERVICE_UNAVAILABLE), END)

    asyncio.run(drive(app, recorder, clock=clock))

    assert (int, "503") == (type(recorder.record.http.status), recorder.record.error_type)


def test_an_unavailable_engine_is_an_error_after_the_hand_off(clock):
    """503 is a rejection until an engine had the request."""
    call = LaterCall()

    ended = ending(clock, call.begin, MS, call.end, response_start(status=503), END)

    assert ("error", "503") == ended[:2]


def test_a_client_that_leaves_cancels(clock):
    """A disconnect that the app sees before its last message is the client's."""
    server = left()

    ended = ending(clock, *TOKENS, RECEIVE, server=server)

    assert ended == ("cancelled", None, 200, "decode")


def test_an_app_that_goes_on_after_the_client_left_is_still_cancelled(clock):
    """Whatever it sends to nobody does not make the request complete."""
    server = left()

    ended = ending(clock, *TOKENS, RECEIVE, DONE, END, server=server)

    assert ended == ("cancelled", None, 200, "decode")


def test_a_disconnect_after_the_last_message_is_ok(clock):
    """Servers say disconnect when the response is complete; that is no cancellation."""
    server = Server(ASKED)

    ended = ending(clock, *TOKENS, DONE, END, RECEIVE, server=server)

    assert ended == ("ok", None, 200, "decode")


def test_a_broken_pipe_cancels(clock):
    """An OSError from the server's send is the client's leaving, and passes to the app."""
    ended = ending(clock, *TOKENS, DONE, END, server=BrokenPipe(ASKED), raises=OSError)

    assert ended == ("cancelled", None, 200, "decode")


def test_a_stream_of_starlette_is_cancelled_by_its_client(clock):
    """Starlette cancels the stream and returns quietly: the record says cancelled."""
    server = left()
    recorder = Recorder()

    async def tokens():
        yield delta(content="a")["body"]
        await asyncio.Event().wait()

    async def app(scope, receive, send):
        await receive()
        await StreamingResponse(tokens(), media_type="text/event-stream")(scope, receive, send)

    asyncio.run(drive(app, recorder, server=server, clock=clock))

    assert (1, "cancelled", True) == (
        len(recorder.records),
        recorder.record.outcome,
        recorder.record.ttft == 0,
    )


@pytest.mark.parametrize("fails", [False, True])
def test_background_work_is_not_part_of_the_request(clock, fails):
    """The record ends at the last message; work and faults after it change nothing."""
    recorder = Recorder()

    async def work():
        clock.advance(900 * MS)
        llm_trace.annotate(late=1)
        if fails:
            raise ValueError("late")

    async def app(scope, receive, send):
        await receive()
        clock.advance(5 * MS)
        await JSONResponse({}, background=BackgroundTask(work))(scope, receive, send)

    run = drive(app, recorder, clock=clock)
    if fails:
        with pytest.raises(ValueError, match="late"):
            asyncio.run(run)
    else:
        asyncio.run(run)

    assert ("ok", 5 * MS) == (recorder.record.outcome, recorder.record.duration)
    assert Counter(late_attributes=1) == faults.dropped


def test_trailers_end_the_response(clock):
    """With trailers announced the end is the last of them."""
    trailers = {"type": "http.response.trailers", "headers": []}
    recorder = Recorder()
    steps = ({**STREAM, "trailers": True}, delta(content="a"), DONE, MS, END, MS)
    app = scripted(clock, *steps, {**trailers, "more_trailers": True}, MS, trailers, 9 * MS)

    asyncio.run(drive(app, recorder, body=ASKED, clock=clock))

    assert ("ok", 3 * MS) == (recorder.record.outcome, recorder.record.duration)


def test_a_file_sent_by_path_ends_the_response(clock):
    """`http.response.pathsend` is the whole body."""
    recorder = Recorder()
    path = {"type": "http.response.pathsend", "path": "/x"}
    app = scripted(clock, response_start("text/html"), MS, path, 9 * MS)

    asyncio.run(drive(app, recorder, scope=http_scope("/page"), clock=clock))

    assert ("ok", MS) == (recorder.record.outcome, recorder.record.duration)


def test_a_file_sent_by_its_descriptor_ends_the_response(clock):
    """`http.response.zerocopysend` is a part of the body, and the last one unless it says more."""
    recorder = Recorder()
    part = {"type": "http.response.zerocopysend", "file": 3}
    more = {**part, "more_body": True}
    app = scripted(clock, response_start("text/html"), MS, more, MS, part, 9 * MS)

    asyncio.run(drive(app, recorder, scope=http_scope("/page"), clock=clock))

    assert ("ok", 2 * MS) == (recorder.record.outcome, recorder.record.duration)


def test_a_request_torn_down_from_another_context_is_recorded(clock):
    """A coroutine closed by the garbage collector or another task ends as cancelled, quietly."""
    recorder = Recorder()
    forever = asyncio.Future(loop=asyncio.new_event_loop())
    server = Server(ASKED)
    middleware = watched(scripted(clock, STREAM, lambda: forever), recorder, clock=clock)
    running = middleware(http_scope(), server.receive, server.send)
    contextvars.copy_context().run(running.send, None)

    contextvars.Context().run(running.close)
    forever.get_loop().close()

    assert recorder.record.outcome == "cancelled"
    assert middleware._dispatch.live == set()


async def worked():
    """What an app says of its work."""
    with llm_trace.phase("rerank"), llm_trace.engine_call("chat", "m") as call:
        call.mark("first_token")


@pytest.mark.parametrize("asks", [(), ((b"x-llm-trace-ledger", b"1"),)])
@pytest.mark.parametrize(
    "steps",
    [
        (worked, STREAM, delta(content="a"), DONE, END),
        (worked, response_start(), response_body(b"{}")),
        (worked, STREAM, delta(content="a"), partial(int, "no number")),
        (worked, STREAM, lambda: asyncio.current_task().cancel(), partial(asyncio.sleep, 0)),
        (worked,),
    ],
)
def test_a_request_that_is_over_is_gone_at_once(clock, steps, asks):
    """It leaves nothing to the garbage collector, which servers run rarely or not at all."""
    scope, server = http_scope(headers=asks), Server(ASKED)
    serving = watched(scripted(clock, *steps), clock=clock)

    async def serve():
        with suppress(ValueError, asyncio.CancelledError):
            await serving(scope, server.receive, server.send)

    gc.disable()
    try:
        asyncio.run(serve())
        timeline = weakref.ref(scope.pop(exchange.MARK))
        left = timeline()
    finally:
        gc.enable()

    assert left is None


def test_a_wall_clock_that_steps_back_moves_nothing(clock):
    """Wall time is read once a request, so no duration is negative."""
    recorder = Recorder()

    def step_back():
        clock.wall -= 60 * 10**9

    wall = clock.wall
    app = scripted(clock, STREAM, 10 * MS, step_back, delta(content="a"), MS, DONE, END)

    asyncio.run(drive(app, recorder, body=ASKED, clock=clock))

    record = recorder.record
    assert (10 * MS, 11 * MS) == (record.ttft, record.duration)
    assert wall == record.received + record.wall_offset


def test_messages_after_the_last_are_nobodys(clock):
    """An app that sends on after its last message makes no second record."""
    recorder = Recorder()
    app = scripted(clock, *TOKENS, DONE, END, MS, delta(content="c"), END)

    asyncio.run(drive(app, recorder, body=ASKED, clock=clock))

    assert recorder.record.duration == 20 * MS


def test_a_timeline_that_is_closed_makes_no_record(clock, monkeypatch):
    """Exactly once: where the record was made already there is no other."""
    recorder = Recorder()
    monkeypatch.setattr(exchange, "freeze", lambda *_: None)

    asyncio.run(drive(scripted(clock, STREAM, END), recorder, clock=clock))

    assert recorder.records == []


def test_while_it_runs_the_request_is_current_and_live(clock):
    """Inside the app the request can be found; before and after there is none."""
    seen = []

    def look():
        seen.append((llm_trace.current(), middleware._dispatch.live_phases()))

    recorder = Recorder()
    middleware = watched(scripted(clock, look, STREAM, END), recorder, clock=clock)
    server, scope = Server(ASKED), http_scope()
    asyncio.run(middleware(scope, server.receive, server.send))

    assert [(scope["llm_trace"], Counter(unattributed=1))] == seen
    assert llm_trace.current() is not scope["llm_trace"]


# --- our own faults -----------------------------------------------------------------------------


class BrokenObserver:
    """Fails on every record."""

    def observe(self, record):
        """Fail."""
        raise RuntimeError(record.outcome)


class BrokenDetector(TokenDetector):
    """Fails on every body."""

    def feed(self, body):
        """Fail."""
        raise RuntimeError(body)


class TracerThatCannotBegin(NoTracer):
    """Fails before the request."""

    def begin(self, headers, name):
        """Fail."""
        raise RuntimeError(headers, name)


class TracerThatCannotActivate(NoTracer):
    """Fails while the request is made current."""

    def begin(self, headers, name):
        """Give an identity."""
        return TraceIdentity(1, 2)

    def activate(self, identity, span_id=0):
        """Fail."""
        raise RuntimeError(identity, span_id)


class TracerThatCannotDeactivate(NoTracer):
    """Fails when the request is over."""

    def deactivate(self, token):
        """Fail."""
        raise RuntimeError(token)


def broken(name, monkeypatch):
    """Keywords of `watched` and observers for the part of this name, broken."""
    if name == "detector":
        monkeypatch.setattr(reply, "TokenDetector", BrokenDetector)
    if name == "receive":
        monkeypatch.setattr(exchange, "request_facts", lambda document: document["missing"])
    if name == "finish":
        monkeypatch.setattr(exchange, "freeze", lambda *_: 1 / 0)
    tracers = {
        "begin": TracerThatCannotBegin,
        "activate": TracerThatCannotActivate,
        "deactivate": TracerThatCannotDeactivate,
    }
    tracer = tracers[name]() if name in tracers else NoTracer()
    return [BrokenObserver()] if name == "observer" else [], {"tracer": tracer}


PARTS = {
    "observer": "BrokenObserver",
    "detector": "send",
    "receive": "receive",
    "finish": "finish",
    "begin": "tracer",
    "activate": "tracer",
    "deactivate": "tracer",
}


@pytest.mark.parametrize("part", PARTS)
def test_a_fault_of_ours_never_reaches_the_request(clock, caplog, monkeypatch, part):
    """Whichever part fails, the client gets its whole answer; the fault is counted, logged once."""
    observers, more = broken(part, monkeypatch)
    steps = (STREAM, delta(content="a"), delta(content="b"), DONE, END)
    middleware = watched(scripted(clock, *steps), *observers, clock=clock, **more)
    expected = b"".join(step.get("body", b"") for step in steps)

    with faults.production():
        for _ in range(2):
            server = Server(ASKED)
            asyncio.run(middleware(http_scope(), server.receive, server.send))

            assert expected == server.body

    assert [PARTS[part]] == list(faults.internal)
    assert [(logging.WARNING, PARTS[part])] == [(r.levelno, r.args[0]) for r in caplog.records]
    assert middleware._dispatch.live == set()


@pytest.mark.parametrize("part", PARTS)
def test_a_fault_of_ours_is_loud_in_tests(clock, monkeypatch, part):
    """Under pytest the same fault is raised, so that we see it."""
    observers, more = broken(part, monkeypatch)
    app = scripted(clock, STREAM, delta(content="a"), DONE, END)
    kinds = (RuntimeError, KeyError, ZeroDivisionError)

    with pytest.raises(kinds):
        asyncio.run(drive(app, *observers, body=ASKED, clock=clock, **more))


def test_a_tracer_that_fails_costs_no_metric(clock):
    """Without an identity there are no spans; the record is made all the same."""
    recorder = Recorder()
    app = scripted(clock, *TOKENS, DONE, END)

    with faults.production():
        asyncio.run(drive(app, recorder, body=ASKED, clock=clock, tracer=TracerThatCannotBegin()))

    assert (None, 10 * MS) == (recorder.record.identity, recorder.record.ttft)


def test_the_apps_own_fault_passes_with_ours_beside_it(clock, monkeypatch):
    """The exception that the app raised is the one that its server sees."""
    broken("finish", monkeypatch)

    with faults.production(), pytest.raises(LookupError):
        asyncio.run(drive(scripted(clock, LookupError()), clock=clock))
