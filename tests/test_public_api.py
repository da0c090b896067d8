"""What `llm_trace` offers, how quick it is to import, and what its test helpers do."""

import asyncio
import importlib.metadata
import inspect
import subprocess
import sys

import pytest

import llm_trace
from llm_trace import testing
from llm_trace.testing import (
    RECEIVE,
    START,
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
    watched,
)

PUBLIC = [
    "LlmTraceError",
    "MissingExtraError",
    "Settings",
    "SettingsError",
    "TraceMiddleware",
    "__version__",
    "admitted",
    "annotate",
    "bind",
    "current",
    "engine_call",
    "headers",
    "instrument",
    "phase",
    "retrieval",
    "user",
]


def test_all_is_exact():
    """Every public name is listed, and every listed name is there."""
    assert PUBLIC == llm_trace.__all__
    assert [name for name in PUBLIC if getattr(llm_trace, name) is None] == []


def test_what_is_not_listed_is_private_or_a_module():
    """Nothing else can be taken for the public interface."""
    llm_trace.instrument  # noqa: B018 - loads what is lazy
    others = {
        name: value
        for name, value in vars(llm_trace).items()
        if not name.startswith("_") and name not in PUBLIC and not inspect.ismodule(value)
    }

    assert {"TYPE_CHECKING", "Any", "annotations", "import_module"} == set(others)


@pytest.mark.parametrize("name", [n for n in PUBLIC if n != "__version__"])
def test_a_public_name_is_documented(name):
    """`help()` says what each is for."""
    assert inspect.getdoc(getattr(llm_trace, name))


def test_an_unknown_name_is_an_attribute_error():
    """As of any module."""
    with pytest.raises(AttributeError, match="module 'llm_trace' has no attribute 'nope'"):
        llm_trace.nope  # noqa: B018


def test_the_version_is_the_packages():
    """The installed metadata and the module agree."""
    assert importlib.metadata.version("llm-trace") == llm_trace.__version__


HEAVY = ["opentelemetry", "prometheus_client", "starlette", "grpc", "fastapi", "vllm"]


@pytest.mark.parametrize(
    ("code", "allowed"),
    [
        ("import llm_trace", []),
        ("import llm_trace; llm_trace.phase; llm_trace.engine_call", []),
        ("import llm_trace.settings, llm_trace.testing", []),
        ("import llm_trace; llm_trace.TraceMiddleware", []),
        (
            "import llm_trace; llm_trace.TraceMiddleware(print)",
            ["opentelemetry", "prometheus_client"],
        ),
    ],
)
def test_importing_is_quick(code, allowed):
    """Libraries load when they are needed, and the SDK and gRPC only for an exporter."""
    tell = f"import sys; print([n for n in {HEAVY} if n in sys.modules], end='')"
    sdk = "; print(any(n.startswith('opentelemetry.sdk') for n in sys.modules))"

    ran = subprocess.run(
        [sys.executable, "-c", f"{code}; {tell}{sdk}"],
        capture_output=True,
        text=True,
        check=True,
        env={},
    )

    assert f"{allowed}False\n" == ran.stdout


# --- llm_trace.testing --------------------------------------------------------------------------


def test_the_clock_moves_when_it_is_told():
    """Monotonic and wall time go together."""
    clock = FakeClock()

    clock.advance(5)

    assert (START + 5, WALL + 5) == (clock.clock.monotonic_ns(), clock.clock.wall_ns())


def test_the_example_of_the_page_works():
    """What the module's docstring shows is what happens."""
    clock = FakeClock()
    recorder = Recorder()
    app = scripted(clock, 5, response_start("text/event-stream"), 20, sse("[DONE]"))

    asyncio.run(drive(app, recorder, clock=clock, body=b'{"stream": true}'))

    assert {"unattributed": 25} == recorder.record.phases


@pytest.mark.parametrize("number", [0, 2])
def test_the_only_record_is_the_only_one(number):
    """None, or more than one, is an error that says how many."""
    recorder = Recorder()
    recorder.records = [None] * number

    with pytest.raises(AssertionError, match=f"expected one record, got {number}"):
        recorder.record  # noqa: B018


def test_a_server_disconnects_when_the_response_is_complete():
    """An app that listens for the disconnect is woken by its own last message."""
    server = Server(b"body")
    seen = []

    async def app(_scope, receive, send):
        seen.append(await receive())
        listening = asyncio.create_task(receive())
        await send(response_start())
        await send(response_body(b"a", more=True))
        seen.append(listening.done())
        await send(response_body(b"b"))
        seen.append(await listening)

    asyncio.run(app(http_scope(), server.receive, server.send))

    assert [
        {"type": "http.request", "body": b"body", "more_body": False},
        False,
        {"type": "http.disconnect"},
    ] == seen
    assert (2, b"ab", 3) == (server.received, server.body, len(server.sent))


def test_a_server_gives_the_messages_that_it_was_given():
    """A disconnect among them is the client's, and repeated for ever after."""
    server = Server(chunks=[{"type": "http.disconnect"}])

    async def ask():
        return [(await server.receive())["type"] for _ in range(3)]

    assert ["http.disconnect"] * 3 == asyncio.run(ask())


def test_a_scripted_app_takes_its_steps():
    """Numbers pass time, messages are sent, calls are called and awaited, errors raised."""
    clock, server, happened = FakeClock(), Server(b"x"), []

    async def later():
        happened.append("awaited")

    steps = (5, RECEIVE, lambda: happened.append("called"), later, response_body(), KeyError("k"))
    asked = [{"type": "http.request", "more_body": True}, {"type": "http.request"}]
    server = Server(chunks=[*asked, {"type": "http.disconnect"}])

    with pytest.raises(KeyError, match="k"):
        asyncio.run(scripted(clock, *steps)(http_scope(), server.receive, server.send))

    assert (START + 5, ["called", "awaited"], 3, [response_body()]) == (
        clock.now,
        happened,
        server.received,
        server.sent,
    )


def test_a_scripted_app_may_not_read():
    """Without `reads` the body stays with the server."""
    server = Server(b"x")

    asyncio.run(scripted(FakeClock(), reads=False)(http_scope(), server.receive, server.send))

    assert server.received == 0


def test_messages_are_made_as_apps_make_them():
    """Headers are bytes, dashes stand for underscores, events are JSON or text as it is."""
    start = response_start("text/plain", 201, content_encoding="gzip")

    assert {
        "type": "http.response.start",
        "status": 201,
        "headers": [(b"content-type", b"text/plain"), (b"content-encoding", b"gzip")],
    } == start
    assert (b'data: {"a": 1}\n\n', b"data: [DONE]\n\n") == (
        sse({"a": 1})["body"],
        sse("[DONE]")["body"],
    )


def test_a_watched_app_serves_many_requests():
    """One middleware, as in a server, and every observer hears of each."""
    one, other = Recorder(), Recorder()
    app = watched(scripted(FakeClock(), response_body()), one, other)

    for _ in range(2):
        server = Server()
        asyncio.run(app(http_scope(), server.receive, server.send))

    assert (2, 2) == (len(one.records), len(other.records))


def test_the_helpers_are_documented():
    """Each public helper says what it is for."""
    public = [
        v for n, v in vars(testing).items() if getattr(v, "__module__", "") == testing.__name__
    ]

    assert [v.__name__ for v in public if not v.__name__.startswith("_") and not v.__doc__] == []
