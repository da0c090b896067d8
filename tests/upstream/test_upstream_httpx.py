"""Calls made with httpx and httpx2: what the ledger shows of them, and what the app sees."""

from __future__ import annotations

import asyncio
import contextvars
import gzip
import pickle

import pytest
from staged_engine import (
    BODY,
    DONE,
    JSON,
    SSE,
    STOP,
    STREAM,
    URL,
    USAGE,
    Answer,
    Engine,
    async_client,
    event,
    serve,
    sync_client,
)

import llm_trace
from llm_trace import semconv as s
from llm_trace.core import faults
from llm_trace.core.identity import TraceIdentity
from llm_trace.core.inband import END, FIRST_TOKEN, MARK, comment, server_timing
from llm_trace.core.tracer import NoTracer
from llm_trace.testing import (
    START,
    Recorder,
    Server,
    drive,
    http_scope,
    response_body,
    response_start,
)
from llm_trace.upstream import switch_off, switch_on

pytestmark = pytest.mark.usefixtures("_watching")

IDENTITY = TraceIdentity(0xABC, 0xDEF)


class Tracer(NoTracer):
    """Gives every request the same place, and notes which span is current."""

    def __init__(self):
        self.active = []

    def begin(self, _headers, _name):
        """The place."""
        return IDENTITY

    def activate(self, _identity, span_id=0):
        """Note the span."""
        self.active.append(span_id)

    def deactivate(self, _token):
        """Nothing to undo."""


async def relayed(client, **more):
    """The bytes of one streamed call."""
    async with client.stream("POST", URL, json=BODY, **more) as response:
        async for data in response.aiter_bytes():
            yield data


def streamed_by(way, module, engine):
    """One streamed call, made in this way."""
    if way == "async":
        return lambda: relayed(async_client(module, engine))

    async def work():
        with sync_client(module, engine).stream("POST", URL, json=BODY) as response:
            for data in response.iter_bytes():
                yield data

    return work


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_streamed_call(way, module, clock):
    """Hand-off, first byte, first and last token, end, usage: from the bytes that the app reads."""
    engine = Engine(clock, Answer(*STREAM, wait=20))

    record, body = serve(streamed_by(way, module, engine), clock)

    (call,) = record.calls
    assert b"".join(step for step in STREAM if isinstance(step, bytes)) == body
    assert (call.operation, call.model, call.source) == ("chat", "qwen", "upstream")
    stamps = ("handed_off", "sent", "first_byte", "first_token", "last_token", "returned")
    assert [0, 0, 20, 30, 35, 35] == [getattr(call, name) - START for name in stamps]
    assert (call.usage.input_tokens, call.usage.output_tokens) == (9, 2)
    assert (call.finish_reason, call.error_type) == ("stop", None)
    assert {s.ENGINE: 30, s.DECODE: 5} == record.phases
    assert {
        s.REQUEST_STREAM: True,
        s.SERVER_ADDRESS: "engine",
        s.SERVER_PORT: 8000,
        s.HTTP_STATUS: 200,
        s.UPSTREAM_FIRST_BYTE: 20e-9,
        s.UPSTREAM_OUTCOME: "ok",
        s.RESPONSE_ID: "c1",
        s.RESPONSE_MODEL: "qwen-1",
        s.RESPONSE_FINISH_REASONS: ("stop",),
        s.RESPONSE_TIME_TO_FIRST_CHUNK: 30e-9,
    } == call.attributes


@pytest.mark.parametrize("way", ["sync", "async"])
def test_an_answer_in_one_piece(way, module, clock):
    """No first token is made up, and the usage is the document's."""
    parts = (5, b'{"choices": [{"finish_reason": "length"}], "usage": {"prompt', 7)
    parts += (b'_tokens": 9, "completion_tokens": 1}}',)
    engine = Engine(clock, Answer(*parts, headers=JSON, wait=20))

    async def work():
        if way == "async":
            response = await async_client(module, engine).post(URL, json=BODY)
        else:
            response = sync_client(module, engine).post(URL, json=BODY)
        assert response.json()["usage"]["prompt_tokens"] == 9
        assert response.elapsed.total_seconds() >= 0
        yield b""

    record, _ = serve(work, clock)

    (call,) = record.calls
    assert (call.first_token, call.returned - START) == (0, 32)
    assert (call.usage.output_tokens, call.finish_reason) == (1, "length")
    assert engine.closed == 1


def test_the_call_is_the_parent_of_what_the_engine_traces(module, clock):
    """The request carries the call's own span, and asks for the ledger."""
    engine, tracer = Engine(clock, Answer(*STREAM)), Tracer()

    record, _ = serve(streamed_by("async", module, engine), clock, tracer=tracer)

    (call,) = record.calls
    assert IDENTITY.traceparent(call.span_id) == engine.asked[0]["traceparent"]
    assert engine.asked[0]["x-llm-trace-ledger"] == "1"
    assert [0, call.span_id] == tracer.active


def test_the_apps_request_is_left_as_it_was(module, clock):
    """Sent again outside of a request, it carries nothing of ours; an own header is back."""
    engine = Engine(clock, Answer(*STREAM), Answer(*STREAM))
    client = sync_client(module, engine)
    request = client.build_request("POST", URL, json=BODY)
    before = request.headers.raw

    async def work():
        yield client.send(request).content

    serve(work, clock, tracer=Tracer())
    client.send(request)

    assert before == request.headers.raw
    assert "traceparent" in engine.asked[0]
    assert {"traceparent", "x-llm-trace-ledger"}.isdisjoint(engine.asked[1])


@pytest.mark.parametrize("own", [{}, {"trace": lambda _event, _info: None}])
def test_what_a_hook_of_the_apps_puts_into_the_extensions_stays(own, module, clock):
    """The request has what the app gave it and its hook added, and nothing of ours."""
    client = sync_client(module, Engine(clock, Answer(*STREAM)))
    client.event_hooks["request"] = [lambda request: request.extensions.update(begun=7)]
    request = client.build_request("POST", URL, json=BODY, extensions=own)
    before = dict(request.extensions)

    async def work():
        yield client.send(request).content

    serve(work, clock)

    assert {**before, "begun": 7} == request.extensions


def test_an_answer_that_a_hook_of_the_apps_reads_away_is_as_without_us(module, clock):
    """Its head is all that is left for the app, and all that is known of the call."""
    client = sync_client(module, Engine(clock, Answer(*STREAM)))
    client.event_hooks["response"] = [lambda response: list(response.iter_raw())]

    async def work():
        with client.stream("POST", URL, json=BODY) as response:
            yield str(response.status_code).encode()

    record, body = serve(work, clock)

    (call,) = record.calls
    assert b"200" == body
    assert (0, "ok") == (call.first_token, call.attributes[s.UPSTREAM_OUTCOME])


def test_a_call_torn_down_from_another_context_ends_quietly(module, clock):
    """Closed by another task or the garbage collector while it waits for the engine."""
    recorder = Recorder()

    class Transport(module.AsyncBaseTransport):
        async def handle_async_request(self, _request):
            await asyncio.sleep(0)

    async def app(_scope, _receive, _send):
        await module.AsyncClient(transport=Transport()).post(URL, json=BODY)

    running = drive(app, recorder, clock=clock)
    contextvars.copy_context().run(running.send, None)
    contextvars.Context().run(running.close)

    assert "cancelled" == recorder.record.outcome


def test_a_parent_that_the_app_chose_stays(module, clock):
    """Another tracer's span, put there by hand, is not fought; our own general one is refined."""
    own = IDENTITY.traceparent(0x123)
    engine = Engine(clock, Answer(*STREAM), Answer(*STREAM))
    client = async_client(module, engine)

    async def work():
        async for data in relayed(client, headers={"traceparent": own}):
            yield data
        async for data in relayed(client, headers=llm_trace.headers()):
            yield data

    record, _ = serve(work, clock, tracer=Tracer())

    assert own == engine.asked[0]["traceparent"]
    assert IDENTITY.traceparent(record.calls[1].span_id) == engine.asked[1]["traceparent"]


def test_outside_of_a_request_nothing_is_touched(module, clock):
    """No header, no watched stream, no call."""
    engine = Engine(clock, Answer(*STREAM))

    with sync_client(module, engine).stream("POST", URL, json=BODY) as response:
        assert "Watched" not in type(response.stream).__name__
        response.read()

    assert {"traceparent", "x-llm-trace-ledger"}.isdisjoint(engine.asked[0])


@pytest.mark.parametrize(
    ("method", "url", "settings", "calls"),
    [
        ("POST", URL, {}, 1),
        ("GET", URL, {}, 0),
        ("POST", "http://store/search", {}, 0),
        ("POST", "http://engine/v1/embeddings", {}, 0),
        ("POST", URL, {"upstream": False}, 0),
        ("POST", "http://engine/ask?key=secret", {"upstream_urls": ("/ask",)}, 1),
        ("POST", URL, {"upstream_urls": ("/ask",)}, 0),
        ("POST", "http://engine/ask", {"upstream_urls": ("http://engine*",)}, 1),
        ("POST", "http://other/ask", {"upstream_urls": ("http://engine*",)}, 0),
        ("POST", "http://engine/ask", {"routes": {"/ask": "chat"}}, 1),
    ],
)
def test_which_requests_are_calls_of_an_engine(method, url, settings, calls, module, clock):
    """The well-known generation routes of any host, or what the settings list; only POST."""
    engine = Engine(clock, Answer(*STREAM))

    async def work():
        yield (await async_client(module, engine).request(method, url, json=BODY)).content

    record, _ = serve(work, clock, settings=settings)

    assert calls == len(record.calls)


def test_an_attempt_after_a_failure_is_the_same_call(module, clock):
    """One call from the first hand-off on; what failed before is told, and how long it took."""
    refused = module.ConnectError("refused")
    engine = Engine(clock, refused, Answer(status=503, headers=JSON, wait=3), Answer(*STREAM))
    client = async_client(module, engine)

    async def work():
        try:
            await client.post(URL, json=BODY)
        except module.ConnectError:
            clock.advance(7)
        await client.post(URL, json=BODY)
        clock.advance(10)
        async for data in relayed(client):
            yield data

    record, _ = serve(work, clock)

    (call,) = record.calls
    assert (call.handed_off - START, call.sent - START, call.first_token - START) == (0, 20, 30)
    assert (f"{module.__name__}.ConnectError", "503") == call.attributes[s.UPSTREAM_FAILURES]
    assert (2, 20e-9) == tuple(call.attributes[k] for k in (s.HTTP_RESEND_COUNT, s.UPSTREAM_RETRY))
    assert (call.error_type, call.attributes[s.UPSTREAM_OUTCOME]) == (None, "ok")


def test_several_calls_are_generation_and_engine(module, clock):
    """A question that is rewritten first: the earlier call is named, the visible one splits."""
    rewritten = Answer(30, b'{"choices": []}', headers=JSON)
    engine = Engine(clock, rewritten, Answer(*STREAM))
    client = async_client(module, engine)

    async def work():
        await client.post(URL, json={**BODY, "stream": False})
        clock.advance(4)
        async for data in relayed(client):
            yield data

    record, _ = serve(work, clock)

    assert 2 == len(record.calls)
    assert {s.GENERATION: 30, s.PREPARE: 4, s.ENGINE: 10, s.DECODE: 5} == record.phases


def test_a_call_that_the_app_opened_by_hand_is_that_call(module, clock):
    """It is not counted twice; it gets its moments, and ends where the app ends it."""
    engine = Engine(clock, Answer(*STREAM))

    async def work():
        with llm_trace.engine_call("chat", "by-hand") as call:
            async for data in relayed(async_client(module, engine), headers=call.headers()):
                yield data
            clock.advance(2)

    record, _ = serve(work, clock, tracer=Tracer())

    (call,) = record.calls
    assert (call.model, call.first_token - START, call.returned - START) == ("by-hand", 10, 17)
    assert IDENTITY.traceparent(call.span_id) == engine.asked[0]["traceparent"]
    assert call.usage.output_tokens == 2


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize(
    ("end", "outcome", "kind"),
    [
        ("ReadTimeout", "timeout", "ReadTimeout"),
        ("ReadError", "error", "ReadError"),
        (asyncio.CancelledError(), "cancelled", None),
    ],
)
def test_a_stream_that_breaks(way, end, outcome, kind, module, clock):
    """The app gets the client's own exception, and the call says how it ended."""
    error = getattr(module, end)("secret") if isinstance(end, str) else end
    engine = Engine(clock, Answer(3, event("a"), 4, error))
    work = streamed_by(way, module, engine)
    caught = []

    async def broken():
        try:
            async for data in work():
                yield data
        except BaseException as raised:  # noqa: BLE001 - looked at below
            caught.append(raised)

    record, _ = serve(broken, clock)

    (call,) = record.calls
    assert caught == [error]
    assert call.attributes[s.UPSTREAM_OUTCOME] == outcome
    assert call.error_type == (kind and f"{module.__name__}.{kind}")
    assert (call.last_token - START, call.returned - START) == (3, 7)
    assert engine.closed == 1


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize(
    ("read", "outcome", "kind"), [(1, "cancelled", None), (3, "ok", None), (5, "ok", None)]
)
def test_an_app_that_reads_no_further(way, read, outcome, kind, module, clock):
    """Left before its end a stream is cancelled; left after the finish reason it is complete."""
    engine = Engine(clock, Answer(*STREAM))

    async def work():
        if way == "sync":
            with sync_client(module, engine).stream("POST", URL, json=BODY) as response:
                for _, data in zip(range(read), response.iter_bytes(), strict=False):
                    yield data
        else:
            async with async_client(module, engine).stream("POST", URL, json=BODY) as response:
                parts = response.aiter_bytes()
                for _ in range(read):
                    yield await anext(parts)

    record, _ = serve(work, clock)

    (call,) = record.calls
    assert (call.attributes[s.UPSTREAM_OUTCOME], call.error_type) == (outcome, kind)
    assert call.returned
    assert engine.closed >= 1


@pytest.mark.parametrize(
    ("answer", "outcome", "kind"),
    [
        (Answer(b"{}", status=429, headers=JSON), "rejected", "429"),
        (Answer(b"{}", status=500, headers=JSON), "error", "500"),
        (Answer(b"{}", status=504, headers=JSON), "timeout", "504"),
        (Answer(event("a")), "truncated", "truncated"),
        (Answer(event("a"), event(finish_reason="abort"), DONE), "error", "abort"),
        (Answer(b'data: {"error": {"type": "Overloaded", "code": 503}}\n\n', DONE), "error", None),
        (Answer(b'{"error": {"type": "Overloaded"}}', headers=JSON), "error", None),
        (Answer(b'{"error": {"type": "Overloaded"}}', status=503, headers=JSON), "error", "503"),
    ],
)
def test_an_engine_that_does_not_answer(answer, outcome, kind, module, clock):
    """A refusal, an error inside of a 200, a stream without an end."""
    engine = Engine(clock, answer)

    async def work():
        yield (await async_client(module, engine).post(URL, json=BODY)).content

    record, _ = serve(work, clock)

    (call,) = record.calls
    assert call.attributes[s.UPSTREAM_OUTCOME] == outcome
    assert call.error_type == (kind or "Overloaded")


def test_text_that_says_what_went_wrong_is_no_token(module, clock):
    """A proxy's refusal in plain text has no token, and what is tried after it is the same call."""
    text = {"content-type": "text/plain"}
    refusal = Answer(b"upstream connect error", status=503, headers=text, wait=10)
    engine = Engine(clock, refusal, Answer(*STREAM))

    async def work():
        client = async_client(module, engine)
        await client.post(URL, json=BODY)
        yield (await client.post(URL, json=BODY)).content

    record, _ = serve(work, clock)

    (call,) = record.calls
    assert START + 20 == call.first_token
    assert ("503",) == call.attributes[s.UPSTREAM_FAILURES]


def test_clients_built_before_and_after(module, clock):
    """Both are watched; turned off, neither is, and the class is as it was."""
    switch_off()
    originals = module.Client.send, module.AsyncClient.send
    engine = Engine(clock, *[Answer(*STREAM)] * 4)
    before = async_client(module, engine)
    switch_on()
    switch_on()
    after = async_client(module, engine)

    async def work():
        for client in (before, after):
            yield (await client.post(URL, json=BODY)).content

    watched, _ = serve(work, clock)
    switch_off()
    unwatched, _ = serve(work, clock)

    assert (2, 0) == (len(watched.calls), len(unwatched.calls))
    assert originals == (module.Client.send, module.AsyncClient.send)


def test_a_wrapper_of_somebody_else_is_left_alone(module, clock):
    """What was wrapped over ours is not undone with ours, which does nothing any more."""
    ours = module.AsyncClient.send

    async def theirs(*args, **kwargs):
        return await ours(*args, **kwargs)

    module.AsyncClient.send = theirs
    engine = Engine(clock, *[Answer(*STREAM)] * 2)
    client = async_client(module, engine)

    async def work():
        yield (await client.post(URL, json=BODY)).content

    try:
        on, _ = serve(work, clock)
        switch_off()
        off, _ = serve(work, clock)
        assert module.AsyncClient.send is theirs
    finally:
        module.AsyncClient.send = ours.__wrapped__

    assert (1, 0) == (len(on.calls), len(off.calls))


def test_work_that_outlives_its_request_is_not_watched(module, clock):
    """A call made after the last byte, as by a background task, belongs to nobody."""
    engine = Engine(clock, Answer(*STREAM))
    kept = []

    async def work():
        kept.append(llm_trace.bind(lambda: sync_client(module, engine).post(URL, json=BODY)))
        yield USAGE

    record, _ = serve(work, clock)
    kept[0]()

    assert not record.calls
    assert "x-llm-trace-ledger" not in engine.asked[0]


def test_a_body_that_is_made_while_it_is_sent(module, clock):
    """Nothing is read ahead of the client: the model is not known, the call is."""
    engine = Engine(clock, Answer(*STREAM))

    async def parts():
        yield b'{"model": "qwen"}'

    async def work():
        yield (await async_client(module, engine).post(URL, content=parts())).content

    record, _ = serve(work, clock)

    assert [""] == [call.model for call in record.calls]
    assert record.model == "qwen"


def test_an_answer_that_a_transport_gives_whole(module, clock):
    """As test transports do: its facts are read, its bytes are what they are."""
    content = event("a") + STOP
    transport = module.MockTransport(
        lambda _request: module.Response(
            200, content=content, headers={"content-type": "text/event-stream"}
        )
    )

    async def work():
        async with module.AsyncClient(transport=transport) as client:
            yield (await client.post(URL, json=BODY)).content

    record, body = serve(work, clock)

    assert content == body
    assert [("ok", "stop")] == [
        (call.attributes[s.UPSTREAM_OUTCOME], call.finish_reason) for call in record.calls
    ]


US = 1_000
TOLD = {**SSE, "x-llm-trace-ledger": "1"}
INSIDE = {s.PREPARE: 2 * US, s.QUEUE_WAIT: 40 * US, s.PREFILL: 20 * US, s.FIRST_TOKEN: 8 * US}
FIRST = comment(FIRST_TOKEN, INSIDE)
WHOLE = comment(END, {**INSIDE, s.DECODE: 6 * US, s.FINISH: US})


def in_band(first=FIRST, last=WHOLE):
    """A stream of an engine that tells its ledger."""
    body = (100 * US, first + event("a"), 9 * US, event("b"), STOP, USAGE, last + DONE)
    return Answer(*body, headers=TOLD)


@pytest.mark.parametrize("way", ["sync", "async"])
def test_the_engines_own_ledger_splits_the_wait(way, module, clock):
    """The app's own time to first token falls into network, queue, prefill and delivery."""
    engine = Engine(clock, in_band())

    record, body = serve(streamed_by(way, module, engine), clock)

    assert event("a") + event("b") + STOP + USAGE + DONE == body
    assert {
        s.NETWORK: 30 * US,
        s.ENGINE: 2 * US,
        s.QUEUE_WAIT: 40 * US,
        s.PREFILL: 20 * US,
        s.FIRST_TOKEN: 8 * US,
    } == record.ttft_phases
    assert record.ttft == 100 * US
    told = {k: v for k, v in record.calls[0].attributes.items() if k.startswith(s.UPSTREAM_PREFIX)}
    assert {
        s.UPSTREAM_PREFIX + phase: ns / 1e9
        for phase, ns in {**INSIDE, s.DECODE: 6 * US, s.FINISH: US}.items()
    } == told


def test_the_ledger_of_an_answer_in_one_piece(module, clock):
    """It comes in the head; the rest of the body is on its way after that."""
    timing = server_timing({s.QUEUE_WAIT: 50 * US, s.PREFILL: 10 * US, s.DECODE: 20 * US})
    headers = {**JSON, "x-llm-trace-ledger": "1", "server-timing": f"db;dur=7, {timing}"}
    engine = Engine(clock, Answer(5 * US, b"{}", headers=headers, wait=100 * US))

    async def work():
        await async_client(module, engine).post(URL, json=BODY)
        yield b""

    record, _ = serve(work, clock)

    assert {
        s.NETWORK: 25 * US,
        s.QUEUE_WAIT: 50 * US,
        s.PREFILL: 10 * US,
        s.DECODE: 20 * US,
    } == record.phases


@pytest.mark.parametrize(
    "first",
    [
        comment(FIRST_TOKEN, {s.PREFILL: 101 * US}),
        b": llm_trace not json\n",
        b': llm_trace {"v": 1, "at": "first_token", "us": {"prefill": -5}}\n',
        b': llm_trace {"v": 1, "at": "first_token", "us": {"prefill": 1e400}}\n',
        b': llm_trace {"v": 2, "at": "first_token", "us": {"prefill": 5}}\n',
        b": llm_trace " + b"[" * 1500 + b"\n",
    ],
)
def test_a_ledger_that_cannot_be_is_counted_and_not_believed(first, module, clock):
    """The wait stays `engine`, and the app's bytes are clean all the same."""
    engine = Engine(clock, in_band(first=first, last=b""))

    record, body = serve(streamed_by("async", module, engine), clock)

    assert {s.ENGINE: 100 * US} == record.ttft_phases
    assert {"upstream_ledger": 1} == dict(faults.dropped)
    assert b"llm_trace" not in body


@pytest.mark.parametrize("settings", [{"ledger_in_band": False}, {"upstream": False}])
def test_switched_off_nobody_is_asked(settings, module, clock):
    """Then a comment is a comment of somebody else's, and passes."""
    engine = Engine(clock, in_band())

    record, body = serve(streamed_by("async", module, engine), clock, settings=settings)

    assert "x-llm-trace-ledger" not in engine.asked[0]
    assert FIRST in body
    assert s.QUEUE_WAIT not in record.phases


def test_an_app_that_asks_itself_reads_what_it_asked_for(module, clock):
    """What we did not ask for we do not take out."""
    engine = Engine(clock, in_band())

    async def work():
        async for data in relayed(
            async_client(module, engine), headers={"x-llm-trace-ledger": "1"}
        ):
            yield data

    _, body = serve(work, clock)

    assert FIRST in body


@pytest.mark.parametrize(("timings", "kept"), [("", {}), ("db;dur=7, ", {"db;dur=7"})])
def test_an_app_that_hands_headers_on_hands_on_no_ledger(timings, kept, module, clock):
    """What the engine told in its head is ours; what else it says there stays."""
    told = {"x-llm-trace-ledger": "1", "server-timing": timings + server_timing({s.PREFILL: 1})}
    engine = Engine(clock, Answer(b"{}", headers={**JSON, **told}))
    seen = []

    async def work():
        response = await async_client(module, engine).post(URL, json=BODY)
        seen.extend(response.headers.multi_items())
        yield b""

    serve(work, clock)

    assert {("server-timing", value) for value in kept} == set(seen) - set(JSON.items())


def test_an_app_that_hands_its_callers_ask_on_reads_no_ledger(module, clock):
    """A proxy: its caller gets one ledger, which is the proxy's own and covers the engine's."""
    engine = Engine(clock, in_band())
    server, recorder = Server(b"{}"), Recorder()

    async def app(scope, receive, send):
        await receive()
        await send(response_start("text/event-stream"))
        headers = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
        client = async_client(module, engine)
        async with client.stream("POST", URL, json=BODY, headers=headers) as response:
            async for data in response.aiter_raw():
                await send(response_body(data, more=True))
        await send(response_body())

    asks = http_scope(headers=[(b"x-llm-trace-ledger", b"1")])
    asyncio.run(drive(app, recorder, scope=asks, server=server, clock=clock))

    assert "1" == engine.asked[0]["x-llm-trace-ledger"]
    assert 2 == server.body.count(MARK)
    assert recorder.record.calls[0].inside is not None


def test_the_ledger_of_the_attempt_that_answered(module, clock):
    """What was lost to an attempt that failed is no network: it stays with the call."""
    engine = Engine(clock, Answer(status=503, headers=JSON, wait=50 * US), in_band())
    client = async_client(module, engine)

    async def work():
        await client.post(URL, json=BODY)
        async for data in relayed(client):
            yield data

    record, _ = serve(work, clock)

    assert {
        s.ENGINE: 52 * US,
        s.NETWORK: 30 * US,
        s.QUEUE_WAIT: 40 * US,
        s.PREFILL: 20 * US,
        s.FIRST_TOKEN: 8 * US,
    } == record.ttft_phases


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_compressed_answer_is_watched_where_it_is_decoded(way, module, clock):
    """Tokens, usage and the ledger are seen, and the app reads a clean text."""
    packed = gzip.compress(FIRST + event("a") + STOP + USAGE + WHOLE + DONE)
    headers = {**TOLD, "content-encoding": "gzip"}
    engine = Engine(clock, Answer(100 * US, packed[:40], packed[40:], headers=headers))

    record, body = serve(streamed_by(way, module, engine), clock)

    assert event("a") + STOP + USAGE + DONE == body
    (call,) = record.calls
    assert (call.usage.output_tokens, call.attributes[s.UPSTREAM_OUTCOME]) == (2, "ok")
    assert record.phases[s.QUEUE_WAIT] == 40 * US


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_compressed_answer_read_in_chunks_of_the_apps_size(way, module, clock):
    """What the client hands out after the wire is at its end is seen as well."""
    packed = gzip.compress(b"".join((event("a"), STOP, USAGE, DONE)))
    engine = Engine(clock, Answer(packed, headers={**SSE, "content-encoding": "gzip"}))

    async def work():
        if way == "sync":
            with sync_client(module, engine).stream("POST", URL, json=BODY) as response:
                for data in response.iter_bytes(4096):
                    yield data
        else:
            client = async_client(module, engine)
            async with client.stream("POST", URL, json=BODY) as response:
                async for data in response.aiter_bytes(4096):
                    yield data

    record, _ = serve(work, clock)

    (call,) = record.calls
    assert ("stop", 2, True) == (call.finish_reason, call.usage.output_tokens, bool(call.returned))


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_compressed_answer_that_cannot_be_decoded_is_an_error(way, module, clock):
    """The decoder's fault is what ended the call, and goes on to the app."""
    headers = {**JSON, "content-encoding": "gzip"}
    engine = Engine(clock, Answer(b"no gzip", headers=headers))

    async def work():
        client = (sync_client if way == "sync" else async_client)(module, engine)
        try:
            answer = client.post(URL, json=BODY)
            yield answer.content if way == "sync" else (await answer).content
        except module.DecodingError:
            yield b"no answer"

    record, body = serve(work, clock)

    (call,) = record.calls
    assert b"no answer" == body
    assert "error" == call.attributes[s.UPSTREAM_OUTCOME]
    assert call.error_type.endswith("DecodingError")


def test_a_compressed_answer_that_the_app_reads_no_further_is_dropped_at_once(module, clock):
    """Nothing of ours keeps the iterator: a loop that is left lets go of the call."""
    headers = {**SSE, "content-encoding": "gzip"}
    engine = Engine(clock, Answer(gzip.compress(event("a")), 5, b"", 5, headers=headers))
    returned = []

    async def work():
        with sync_client(module, engine).stream("POST", URL, json=BODY) as response:
            for data in response.iter_bytes():
                yield data
                break
            returned.extend(call.returned for call in llm_trace.current().calls)

    serve(work, clock)

    assert [START] == returned


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_an_answer_may_still_be_pickled(encoding, module, clock):
    """As by a cache of answers, in a request as outside of one."""
    content = b'{"choices": []}'
    body = gzip.compress(content) if encoding == "gzip" else content
    engine = Engine(clock, Answer(body, headers={**JSON, "content-encoding": encoding}))

    async def work():
        response = await async_client(module, engine).post(URL, json=BODY)
        yield pickle.loads(pickle.dumps(response)).content  # noqa: S301 - our own

    _, read = serve(work, clock)

    assert content == read


def test_a_compressed_answer_that_is_passed_on_as_it_is(module, clock):
    """A relay that never decodes it: it was complete, and nothing of it is known."""
    packed = gzip.compress(event("a") + STOP + DONE)
    engine = Engine(clock, Answer(packed, headers={**SSE, "content-encoding": "gzip"}))

    async def work():
        client = async_client(module, engine)
        async with client.stream("POST", URL, json=BODY) as response:
            async for data in response.aiter_raw():
                yield data

    record, body = serve(work, clock)

    assert packed == body
    (call,) = record.calls
    assert (call.first_token, call.attributes[s.UPSTREAM_OUTCOME]) == (0, "ok")


METRICS = b'{"queue_time_ms": 0.04, "time_to_first_token_ms": 0.02, "generation_time_ms": 0.009}'


def test_vllms_per_request_metrics_split_the_wait(module, clock):
    """Queue and prefill by vLLM's own clock; what it did before is not told, and no network."""
    usage = USAGE.replace(b"}}\n", b'}, "metrics": ' + METRICS + b"}\n")
    engine = Engine(clock, Answer(100 * US, event("a"), 9 * US, event("b"), STOP, usage, DONE))

    record, _ = serve(streamed_by("async", module, engine), clock)

    expected = {s.ENGINE: 40 * US, s.QUEUE_WAIT: 40 * US, s.PREFILL: 20 * US}
    assert expected == record.ttft_phases
    told = {k: v for k, v in record.calls[0].attributes.items() if k.startswith(s.UPSTREAM_PREFIX)}
    assert told == {
        f"{s.UPSTREAM_PREFIX}queue_wait": 40e-6,
        f"{s.UPSTREAM_PREFIX}prefill": 20e-6,
    }


def test_vllms_metrics_of_an_answer_in_one_piece(module, clock):
    """Its decode is known, too."""
    body = b'{"choices": [], "metrics": ' + METRICS + b"}"
    engine = Engine(clock, Answer(body, headers=JSON, wait=100 * US))

    async def work():
        await async_client(module, engine).post(URL, json=BODY)
        yield b""

    record, _ = serve(work, clock)

    assert {
        s.ENGINE: 31 * US,
        s.QUEUE_WAIT: 40 * US,
        s.PREFILL: 20 * US,
        s.DECODE: 9 * US,
    } == record.phases


@pytest.mark.parametrize(
    "metrics", [b"null", b"[]", b'{"time_to_first_token_ms": -1}', b'{"queue_time_ms": 5}', b"7"]
)
def test_metrics_that_say_nothing_leave_the_engine_unsplit(metrics, module, clock):
    """Null, nonsense, or no prefill among them."""
    usage = USAGE.replace(b"}}\n", b'}, "metrics": ' + metrics + b"}\n")
    engine = Engine(clock, Answer(100 * US, event("a"), STOP, usage, DONE))

    record, _ = serve(streamed_by("async", module, engine), clock)

    assert {s.ENGINE: 100 * US} == record.ttft_phases
    assert not faults.dropped


def test_a_token_that_comes_in_pieces_is_there_when_it_is_whole(module, clock):
    """Half an event is no token, neither the first nor the last."""
    first, last = event("a"), event("b")
    body = (4, first[:30], 6, first[30:] + last[:50], 5, last[50:], 3, STOP, DONE)
    engine = Engine(clock, Answer(*body))

    record, _ = serve(streamed_by("async", module, engine), clock)

    (call,) = record.calls
    assert (call.first_token - START, call.last_token - START) == (10, 15)
    assert call.attributes[s.RESPONSE_TIME_TO_FIRST_CHUNK] == 10e-9


@pytest.mark.parametrize(
    ("body", "expected"),
    [((4, b": ping\n\n", 6, event("a"), STOP, DONE), 10e-9), ((4, b": ping\n\n", 6, DONE), None)],
    ids=["before a token", "alone"],
)
def test_a_comment_is_no_chunk_of_the_answer(body, expected, module, clock):
    """An engine sends them to keep a connection alive while the request waits."""
    record, _ = serve(streamed_by("async", module, Engine(clock, Answer(*body))), clock)

    (call,) = record.calls
    assert call.attributes.get(s.RESPONSE_TIME_TO_FIRST_CHUNK) == expected


@pytest.mark.parametrize("way", ["sync", "async"])
def test_what_the_client_waited_for_a_connection(way, module, clock):
    """By the transport's own events, which the app may listen to as well."""
    heard = []
    events = ("connection.connect_tcp.started", "http11.send_request_headers.started")
    engine = Engine(clock, Answer(*STREAM), events=events)

    def hear(event, _info):
        heard.append(event)

    async def hear_async(event, _info):
        heard.append(event)

    async def work():
        if way == "sync":
            client = sync_client(module, engine)
            yield client.post(URL, json=BODY, extensions={"trace": hear}).content
        else:
            client = async_client(module, engine)
            yield (await client.post(URL, json=BODY, extensions={"trace": hear_async})).content

    record, _ = serve(work, clock)

    assert 12e-9 == record.calls[0].attributes[s.UPSTREAM_CONNECT]
    assert list(events) == heard


def test_a_client_inside_of_a_client_is_one_call(module, clock):
    """A transport that sends by another client, as the openai client's over aiohttp does."""
    engine = Engine(clock, Answer(*STREAM))
    inner = async_client(module, engine)

    class Through(module.AsyncBaseTransport):
        async def handle_async_request(self, request):
            answer = await inner.post(str(request.url), content=request.content)
            return module.Response(200, headers=SSE, content=answer.content)

    async def work():
        async with module.AsyncClient(transport=Through()) as client:
            yield (await client.post(URL, json=BODY)).content

    record, _ = serve(work, clock)

    assert 1 == len(record.calls)


def test_a_stream_of_plain_text_has_no_terminator(module, clock):
    """An engine that streams text alone is complete when it ends."""
    engine = Engine(clock, Answer(5, b"one ", 5, b"two", headers={"content-type": "text/plain"}))

    record, body = serve(streamed_by("async", module, engine), clock)

    (call,) = record.calls
    assert body == b"one two"
    assert (call.attributes[s.UPSTREAM_OUTCOME], call.first_token - START) == ("ok", 5)


def test_what_is_read_again_is_not_watched_again(module, clock):
    """A compressed answer that the client keeps may be iterated over as often as the app likes."""
    packed = gzip.compress(event("a") + STOP + DONE)
    engine = Engine(clock, Answer(packed, headers={**SSE, "content-encoding": "gzip"}))

    async def work():
        response = await async_client(module, engine).post(URL, json=BODY)
        clock.advance(50)
        async for data in response.aiter_bytes():
            yield data

    record, body = serve(work, clock)

    (call,) = record.calls
    assert event("a") + STOP + DONE == body
    assert (call.first_token, call.last_token, call.returned) == (START, START, START)


def test_two_questions_inside_of_one_call_by_hand(module, clock):
    """The first token is the first one's, and its ledger stays the one that is laid."""
    engine = Engine(clock, in_band(), in_band())
    client = async_client(module, engine)

    async def work():
        with llm_trace.engine_call("chat", "by-hand"):
            for _ in range(2):
                async for data in relayed(client):
                    yield data

    record, _ = serve(work, clock)

    assert 1 == len(record.calls)
    assert record.ttft_phases[s.QUEUE_WAIT] == 40 * US
    assert not faults.dropped


def test_the_waits_of_a_second_question_are_its_own(module, clock):
    """Measured from when it was sent itself, though the call's stamps are the first one's."""
    writes = ["http11.send_request_headers.started"]
    engine = Engine(clock, Answer(*STREAM, wait=20), Answer(*STREAM, wait=30), events=writes)
    client = async_client(module, engine)

    async def work():
        with llm_trace.engine_call("chat", "by-hand"):
            for _ in range(2):
                async for data in relayed(client):
                    yield data

    record, _ = serve(work, clock)

    (call,) = record.calls
    waits = (s.UPSTREAM_CONNECT, s.UPSTREAM_FIRST_BYTE, s.RESPONSE_TIME_TO_FIRST_CHUNK)
    assert [6e-9, 36e-9, 46e-9] == [call.attributes[name] for name in waits]


@pytest.mark.parametrize("way", ["sync", "async"])
def test_an_answer_in_one_piece_that_breaks(way, module, clock):
    """The client raises what it would have raised, and has let go of the connection."""
    error = module.ReadTimeout("slow")
    engine = Engine(clock, Answer(b'{"usage', error, headers=JSON))
    caught = []

    async def work():
        try:
            if way == "sync":
                sync_client(module, engine).post(URL, json=BODY)
            else:
                await async_client(module, engine).post(URL, json=BODY)
        except module.ReadTimeout as raised:
            caught.append(raised)
        yield b""

    record, _ = serve(work, clock)

    (call,) = record.calls
    assert caught == [error]
    assert call.attributes[s.UPSTREAM_OUTCOME] == "timeout"
    assert engine.closed >= 1


def test_a_sync_stream_that_ends_in_a_beginning(module, clock):
    """What was held back as the beginning of a ledger comes with the end."""
    engine = Engine(clock, Answer(event("a") + b": llm", headers=TOLD))

    _, body = serve(streamed_by("sync", module, engine), clock)

    assert event("a") + b": llm" == body


def test_nothing_of_what_is_said_is_kept(module, clock):
    """No prompt, answer, key, query string or user of the URL is in the record of a call."""
    canary = "canary-7f3a"
    url = URL.replace("http://", f"http://{canary}-user:{canary}-password@") + f"?key={canary}"
    body = {**BODY, "messages": [{"role": "user", "content": canary}], "user": canary}
    error = f'data: {{"error": {{"type": "Bad", "message": "{canary}"}}}}\n\n'.encode()
    engine = Engine(clock, Answer(event(canary), error), Answer(event(canary), STOP))
    client = async_client(module, engine)

    async def work():
        headers = {"authorization": f"Bearer {canary}", "cookie": canary}
        for _ in range(2):
            yield (await client.post(url, json=body, headers=headers)).content

    record, answered = serve(work, clock, tracer=Tracer())

    assert canary.encode() in answered
    assert len(record.calls) == 2
    assert canary not in repr(record)
