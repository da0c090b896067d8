"""The middleware decides which scopes are watched and gives each request a state of its own."""

import asyncio
import contextvars

import pytest

import llm_trace
from llm_trace.core import engines
from llm_trace.core.identity import TraceIdentity
from llm_trace.core.tracer import NoTracer
from llm_trace.testing import (
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
STREAM = response_start("text/event-stream")
DONE = sse("[DONE]")
END = response_body()


def token(text):
    """A chat chunk with this text."""
    return sse({"choices": [{"delta": {"content": text}}]})


def passed(scope, **settings):
    """What an app behind the middleware is called with, and what the server gave."""
    got = []

    async def app(*args):
        got.extend(args)

    recorder, server = Recorder(), Server()
    given = [scope, server.receive, server.send]
    asyncio.run(watched(app, recorder, settings=settings)(*given))
    assert recorder.records == []
    return [a is b for a, b in zip(given, got, strict=True)], dict(got[0])


@pytest.mark.parametrize("kind", ["websocket", "something.new"])
def test_other_scopes_get_the_servers_own_callables(kind):
    """WebSocket and unknown scopes pass with the very same objects, unmarked."""
    scope = {"type": kind, "path": "/v1/chat/completions"}

    same, seen = passed(dict(scope))

    assert [True, True, True] == same
    assert scope == seen


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("OPTIONS", "/v1/chat/completions"),
        ("HEAD", "/v1/chat/completions"),
        ("TRACE", "/v1/chat/completions"),
        ("GET", "/health"),
        ("GET", "/healthz"),
        ("GET", "/metrics"),
        ("GET", "/metrics/"),
        ("GET", "/v1/models"),
        ("GET", "/openai/v1/models"),
        ("GET", "/docs/oauth2-redirect"),
    ],
)
def test_probes_preflights_and_scrapes_are_quiet(method, path):
    """They are neither traced nor counted, and see the server's own callables."""
    scope = http_scope(path, method=method)

    same, seen = passed(dict(scope))

    assert [True, True, True] == same
    assert scope == seen


@pytest.mark.parametrize("path", ["/proxy/health", "/proxy/metrics"])
def test_probes_are_quiet_behind_a_prefix(path):
    """Servers leave a proxy's prefix, or a mount's, in the path."""
    same, _ = passed(http_scope(path, root_path="/proxy"))

    assert [True, True, True] == same


def test_a_disabled_middleware_passes_everything_untouched():
    """With `enabled` false a request sees the server's own callables and no mark."""
    scope = http_scope()

    same, seen = passed(dict(scope), enabled=False)

    assert [True, True, True] == same
    assert scope == seen


def test_a_middleware_inside_another_steps_aside():
    """Added twice, or on a mounted app too, there is one record of a request."""
    outer, inner = Recorder(), Recorder()
    clock = FakeClock()
    app = scripted(clock, STREAM, MS, token("a"), DONE, END)

    asyncio.run(drive(watched(app, inner, clock=clock), outer, clock=clock))

    assert (1, 0) == (len(outer.records), len(inner.records))


def test_an_app_that_is_called_again_for_a_request_is_watched_again():
    """As by a layer outside that repeats what failed: of each run there is a record."""
    clock, recorder = FakeClock(), Recorder()
    runs = [
        scripted(clock, response_start(status=503), END),
        scripted(clock, STREAM, MS, token("a"), DONE, END),
    ]

    async def app(*given):
        await runs.pop(0)(*given)

    serving, scope = watched(app, recorder, clock=clock), http_scope()
    for server in (Server(), Server()):
        asyncio.run(serving(scope, server.receive, server.send))

    assert [None, MS] == [record.ttft for record in recorder.records]


class Pause:
    """Gives the turn to whoever drives the coroutine."""

    def __await__(self):
        yield


def take_turns(*coroutines):
    """Run coroutines step by step, one step each, every one in a context of its own."""
    running = [(contextvars.copy_context(), coroutine) for coroutine in coroutines]
    while running:
        for context, coroutine in tuple(running):
            try:
                context.run(coroutine.send, None)
            except StopIteration:
                running.remove((context, coroutine))


def test_overlapping_requests_do_not_mix():
    """Two requests through one middleware at once keep bodies, tokens, phases and ends apart."""
    clock, recorder = FakeClock(), Recorder()

    async def app(scope, receive, send):
        name = scope["path"][-1]
        await receive()
        with llm_trace.phase(name):
            await Pause()
            clock.advance(10 * MS)
        await send(STREAM)
        for _ in range(3 if name == "a" else 2):
            await Pause()
            clock.advance(10 * MS)
            await send(token(name))
        await send(DONE)
        await send(END)

    middleware = watched(app, recorder, clock=clock, settings={"routes": {"/a": "a", "/b": "b"}})
    servers = {name: Server(b'{"model": "%s"}' % name.encode()) for name in "ab"}

    take_turns(*(middleware(http_scope(f"/{n}"), s.receive, s.send) for n, s in servers.items()))

    told = [
        (r.operation, r.model, r.outcome, r.ttft // MS, sum(r.gaps.counts), r.duration // MS)
        for r in recorder.records
    ]
    assert [("b", "b", "ok", 40, 1, 60), ("a", "a", "ok", 30, 2, 70)] == told
    assert [["b"], ["a"]] == [[i.phase for i in r.intervals] for r in recorder.records]


def test_the_state_of_the_server_is_the_requests():
    """What a server left in `scope["state"]` can be found on the request; none is nothing."""
    seen = []

    async def app(scope, _receive, _send):
        seen.append(scope["llm_trace"].state)

    state = {"engine": object()}
    asyncio.run(drive(app, scope=http_scope(state=state)))
    asyncio.run(drive(app, scope=http_scope(state=None)))

    assert [state, {}] == seen


def test_integrations_meet_the_first_request_of_each_server(monkeypatch):
    """A hook is called once for each middleware, with the scope of its first request."""
    met = []
    monkeypatch.setattr(engines, "_hooks", [met.append])
    middleware = watched(scripted(FakeClock(), END))
    scopes = [http_scope("/health"), http_scope(), http_scope()]

    for scope in scopes:
        server = Server()
        asyncio.run(middleware(scope, server.receive, server.send))

    assert [scopes[1]] == met


class FixedTracer(NoTracer):
    """Gives every request the same place in a trace."""

    def begin(self, headers, name):
        """The place; what it was told is kept."""
        self.told = (list(headers), name)
        return TraceIdentity(0xA, 0xB, trace_state="vendor=1")


INBOUND = [
    (b"traceparent", b"00-" + b"c" * 32 + b"-" + b"d" * 16 + b"-01"),
    (b"accept", b"*/*"),
    (b"tracestate", b"old=1"),
    (b"baggage", b"k=v"),
]
OURS = b"00-0000000000000000000000000000000a-000000000000000b-01"


def test_inbound_trace_headers_name_our_span():
    """Inner instrumentation finds our span in the headers; every other header stays in place."""
    seen, tracer = [], FixedTracer()

    async def app(scope, _receive, _send):
        seen.extend(scope["headers"])

    asyncio.run(drive(app, scope=http_scope(headers=INBOUND), tracer=tracer))

    ours = [(b"traceparent", OURS), (b"tracestate", b"vendor=1")]
    assert [INBOUND[1], INBOUND[3], *ours] == seen
    assert (INBOUND, "POST /v1/chat/completions") == tracer.told


@pytest.mark.parametrize(
    ("tracer", "settings"), [(FixedTracer(), {"rewrite_traceparent": False}), (NoTracer(), {})]
)
def test_headers_stay_as_they_came(tracer, settings):
    """With the switch off, or without a tracer, the very list of headers reaches the app."""
    scope = http_scope(headers=INBOUND)
    headers = scope["headers"]
    seen = []

    async def app(scope, _receive, _send):
        seen.append(scope["headers"])

    asyncio.run(drive(app, scope=scope, tracer=tracer, settings=settings))

    assert seen[0] is headers
    assert INBOUND == headers
