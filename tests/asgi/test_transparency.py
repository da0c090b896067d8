"""Whatever an app and a server do, both see the same calls, in the same order, with us between."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_trace.core import faults
from llm_trace.core.identity import TraceIdentity
from llm_trace.core.tracer import NoTracer
from llm_trace.testing import Recorder, http_scope, watched

CHUNK = b'data: {"choices": [{"delta": {"content": "%d"}}]}\n\n'
HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"Set-Cookie", b"a=1"),
    (b"set-cookie", b"b=2"),
]


def start(status, headers, *, trailers):
    """A response's beginning."""
    message = {"type": "http.response.start", "status": status, "headers": headers}
    return {**message, "trailers": True} if trailers else message


BODIES = st.one_of(
    st.binary(max_size=20),
    st.sampled_from([CHUNK % 1, CHUNK % 2, b"data: [DONE]\n\n", b": ping\n\n", b'{"id": "x"}']),
    st.builds(bytearray, st.binary(max_size=9)),
    st.builds(memoryview, st.binary(max_size=9)),
)
SENDS = st.one_of(
    st.builds(
        start,
        st.sampled_from([200, 204, 302, 401, 500]),
        st.sampled_from([HEADERS, [], HEADERS[1:], [(b"content-type", b"application/json")]]),
        trailers=st.booleans(),
    ),
    st.fixed_dictionaries(
        {"type": st.just("http.response.body")},
        optional={"body": BODIES, "more_body": st.booleans()},
    ),
    st.fixed_dictionaries(
        {"type": st.just("http.response.trailers"), "headers": st.just([(b"x-sum", b"1")])},
        optional={"more_trailers": st.booleans()},
    ),
    st.sampled_from(
        [
            {"type": "http.response.pathsend", "path": "/x"},
            {"type": "http.response.zerocopysend", "file": 3},
            {"type": "http.response.debug", "info": {}},
            {"type": "http.response.push", "path": "/y", "headers": []},
        ]
    ),
)
ERRORS = st.sampled_from([ValueError("app"), OSError("app"), asyncio.CancelledError("app")])
STEPS = st.lists(st.one_of(st.just("receive"), st.just("yield"), SENDS, ERRORS), max_size=14)
REQUESTS = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {"type": st.just("http.request")},
            optional={
                "body": st.sampled_from([b"", b'{"model": "m",', b' "stream": true}', b"\xff"]),
                "more_body": st.booleans(),
            },
        ),
        st.just({"type": "http.disconnect"}),
    ),
    max_size=4,
)
FAULTS = st.dictionaries(
    st.integers(0, 12),
    st.sampled_from([OSError("gone"), ConnectionResetError("gone"), RuntimeError("server")]),
    max_size=2,
)


class Witness:
    """A server and an app that note every call at their own ends."""

    def __init__(self, steps, inbound, faults):
        self.steps, self.inbound, self.faults = steps, list(inbound), faults
        self.log = []
        self._sends = count()

    async def app(self, _scope, receive, send):
        """Take the steps; what a call raises is noted and raised on."""
        for step in self.steps:
            self.log.append(("app does", kind_of(step)))
            try:
                if step == "receive":
                    self.log.append(("app got", await receive()))
                elif step == "yield":
                    await asyncio.sleep(0)
                else:
                    await fail_or_send(step, send)
            except BaseException as error:
                self.log.append(("app saw", error))
                raise

    async def receive(self):
        """The next message; without one the client has left."""
        self.log.append(("server asked",))
        await asyncio.sleep(0)
        return self.inbound.pop(0) if self.inbound else {"type": "http.disconnect"}

    async def send(self, message):
        """Note the very message, or fail."""
        self.log.append(("server sent", id(message), dict(message)))
        await asyncio.sleep(0)
        fault = self.faults.get(next(self._sends))
        if fault is not None:
            raise fault

    async def serve(self, app):
        """One exchange; what comes out at the server's end is the last entry."""
        scope = http_scope()
        try:
            await app(scope, self.receive, self.send)
        except BaseException as error:  # noqa: BLE001 - a server sees whatever comes
            self.log.append(("server saw", error))
        return self.log


async def fail_or_send(step, send):
    """Raise an exception, send a message."""
    if isinstance(step, BaseException):
        raise step
    await send(step)


def kind_of(step):
    """A step without its identity."""
    return step if isinstance(step, str) else type(step).__name__


class Traced(NoTracer):
    """Every request has a place in a trace, so that all of us is at work."""

    def begin(self, headers, name):
        """The place."""
        return TraceIdentity(1, 2)


@given(STEPS, REQUESTS, FAULTS, st.booleans())
def test_app_and_server_cannot_tell_that_we_are_there(steps, inbound, faults, captured):
    """Same calls, same order, the very same message objects and exceptions, at both ends."""
    settings = {"capture_content": captured}
    bare, seen = Witness(steps, inbound, faults), Witness(steps, inbound, faults)
    recorder = Recorder()

    expected = asyncio.run(bare.serve(bare.app))
    traced = watched(seen.app, recorder, tracer=Traced(), settings=settings)
    found = asyncio.run(seen.serve(traced))

    assert expected == found
    assert len(recorder.records) == 1


@given(STEPS, REQUESTS, st.integers(0, 12))
def test_a_task_that_is_cancelled_ends_as_without_us(steps, inbound, turns):
    """A server that gives a request up at any moment sees the same end of it."""
    bare, seen = Witness(steps, inbound, {}), Witness(steps, inbound, {})
    recorder = Recorder()

    expected = asyncio.run(cancelled(bare, bare.app, turns))
    found = asyncio.run(cancelled(seen, watched(seen.app, recorder), turns))

    assert expected == found
    assert len(recorder.records) == 1


async def cancelled(witness, app, turns):
    """The log of an exchange whose task is cancelled after so many turns of the loop."""
    task = asyncio.ensure_future(witness.serve(app))
    await asyncio.sleep(0)  # it has begun
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    return [entry for entry in witness.log if not names_a_cancel(entry)] + [len(witness.log)]


def test_what_is_no_message_is_refused_by_the_server_as_without_us():
    """Whatever an app sends reaches the server, and what the server says of it reaches the app."""

    async def app(_scope, _receive, send):
        await send(None)

    async def refuse(message):
        raise TypeError(f"no message: {message}")

    with faults.production(), pytest.raises(TypeError, match="no message: None"):
        asyncio.run(watched(app, Recorder())(http_scope(), None, refuse))


def names_a_cancel(entry):
    """Each cancel is an object of its own."""
    return isinstance(entry[-1], asyncio.CancelledError)
