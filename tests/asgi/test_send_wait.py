"""A `send` that a slow client holds back: timed from its suspension, driven exactly as `await`."""

import asyncio
import gc
import types
import weakref

import pytest
import trio
import trio.lowlevel

from llm_trace.asgi.held import rest_of
from llm_trace.asgi.middleware import LedgerMiddleware
from llm_trace.core.dispatch import Dispatch
from llm_trace.settings import Settings
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
)

TOKEN = sse({"choices": [{"index": 0, "delta": {"content": " a"}}]})
DONE = sse("[DONE]")
HELD = 7_000


class SlowReader(Server):
    """A client whose server suspends `send` for as long as the clock is told, at some messages."""

    def __init__(self, clock, held):
        super().__init__(b"")
        self._clock = clock
        self._held = dict(held)

    async def send(self, message):
        """Take the message at once, or after a wait that other tasks run in."""
        wait = self._held.get(len(self.sent))
        if wait:
            await asyncio.sleep(0)
            self._clock.advance(wait)
            await asyncio.sleep(0)
        await super().send(message)


def record_of(held, *steps):
    """What is recorded of a stream whose messages, by number, are held back."""
    clock, recorder = FakeClock(), Recorder()
    app = scripted(clock, response_start("text/event-stream"), *steps, response_body())
    server = SlowReader(clock, held)
    asyncio.run(drive(app, recorder, clock=clock, scope=http_scope(), server=server))
    return recorder.record


def test_what_holds_the_first_token_is_told_from_what_holds_the_rest():
    """Back-pressure up to the first token is a number of its own, and the stream's is the whole."""
    record = record_of({0: 10, 1: HELD, 3: 500}, 40, TOKEN, 40, TOKEN, 40, TOKEN)

    assert (HELD + 10, HELD + 10 + 500) == (record.send_wait, record.send_wait_total)
    assert 10 + 40 + HELD == record.ttft


def test_a_send_that_does_not_suspend_holds_nobody():
    """The server's own work is no back-pressure, however long it takes."""
    record = record_of({}, 40, TOKEN, 40, TOKEN)

    assert (0, 0) == (record.send_wait, record.send_wait_total)


def test_without_a_token_the_wait_is_the_whole():
    """An answer in one piece can be held too: its client waits for all of it."""
    clock, recorder = FakeClock(), Recorder()
    app = scripted(clock, response_start(), response_body(b"{}"))
    server = SlowReader(clock, {1: HELD})
    asyncio.run(drive(app, recorder, clock=clock, server=server))

    assert (HELD, HELD) == (recorder.record.send_wait, recorder.record.send_wait_total)


def test_a_client_that_leaves_while_send_is_held_is_heard():
    """An error after the suspension is the app's to see, and the wait counts."""
    clock, recorder = FakeClock(), Recorder()

    class GoneWhileHeld(SlowReader):
        """A client that goes away while its server waits for it."""

        async def send(self, message):
            """Wait, then fail."""
            await super().send(message)
            if len(self.sent) == 3:
                raise ConnectionResetError

    app = scripted(clock, response_start("text/event-stream"), TOKEN, TOKEN, TOKEN)
    server = GoneWhileHeld(clock, {2: HELD})
    with pytest.raises(ConnectionResetError):
        asyncio.run(drive(app, recorder, clock=clock, scope=http_scope(), server=server))

    assert ("cancelled", HELD) == (recorder.record.outcome, recorder.record.send_wait_total)


@types.coroutine
def conversation(*words):
    """Yield words, and return what was sent or thrown in, in order."""
    heard = []
    for word in words:
        try:
            heard.append((yield word))
        except ValueError as error:
            heard.append(error)
    return heard


async def await_by_hand(awaitable, heard):
    """Await as the hot path does, and keep what came out."""

    async def noting():
        heard.extend(await awaitable)

    steps = noting().__await__()
    for yielded in steps:
        await rest_of(steps, yielded)
        break


def test_what_a_loop_sends_and_throws_reaches_the_awaitable():
    """Loops that send values, as trio's does, and cancellations are heard where they are meant."""
    heard, fault = [], ValueError("thrown")
    outer = await_by_hand(conversation("a", "b", "c"), heard)

    said = [outer.send(None), outer.send("first"), outer.throw(fault)]
    with pytest.raises(StopIteration):
        outer.send(None)

    assert (["a", "b", "c"], ["first", fault, None]) == (said, heard)


def test_closing_closes_what_is_awaited():
    """A task that is torn down tears down the send that it is in."""
    closed = []

    async def held():
        try:
            await conversation("a")
        finally:
            closed.append(True)

    async def outer():
        steps = held().__await__()
        for yielded in steps:
            await rest_of(steps, yielded)
            break

    running = outer()
    running.send(None)
    running.close()

    assert [True] == closed


@pytest.mark.parametrize("error", [ValueError("thrown"), asyncio.CancelledError()])
def test_a_plain_iterator_cannot_hear_and_lets_errors_pass(error):
    """An awaitable may give an iterator with `__next__` alone: what is thrown goes to the app."""
    rest = rest_of(iter(["b"]), "a")
    assert "a" == rest.send(None)
    assert "b" == rest.send(None)
    with pytest.raises(type(error)):
        rest.throw(error)

    rest = rest_of(iter(()), "a")
    rest.send(None)
    rest.close()


@pytest.mark.parametrize(
    "send",
    [
        pytest.param(lambda _: asyncio.sleep(0), id="coroutine"),
        pytest.param(lambda _: asyncio.ensure_future(asyncio.sleep(0)), id="future"),
        pytest.param(types.coroutine(lambda _: (yield from asyncio.sleep(0))), id="generator"),
    ],
)
def test_every_kind_of_awaitable_is_awaited(send):
    """Servers return coroutines, futures and older things from `send`."""
    clock, recorder = FakeClock(), Recorder()
    server = Server()
    server.send = send
    app = scripted(clock, response_start("text/event-stream"), TOKEN, DONE, response_body())
    asyncio.run(drive(app, recorder, clock=clock, scope=http_scope(), server=server))

    assert "ok" == recorder.record.outcome


def test_a_cancelled_send_is_cancelled_and_not_lost():
    """A timeout around `send` reaches the server's own code, which may clean up."""
    cleaned = []

    async def send(_message):
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)

    async def impatient(_scope, _receive, send):
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(send(response_start()), 0.001)

    server = Server()
    server.send = send
    asyncio.run(drive(impatient, server=server))

    assert [True] == cleaned


def test_a_server_on_trio_is_timed_as_well():
    """hypercorn may run on trio, whose loop sends values into what it awaits; no lag is known."""
    clock, recorder = FakeClock(), Recorder()

    class Trio(Server):
        """A client that lets trio do something else before the first token."""

        async def send(self, message):
            """Take the message."""
            if len(self.sent) == 1:
                send_channel, receive_channel = trio.open_memory_channel(1)
                await send_channel.send(HELD)
                await trio.lowlevel.checkpoint()
                clock.advance(await receive_channel.receive())
            await super().send(message)

    server = Trio()
    server.receive = inbound(b"{}")
    app = scripted(clock, response_start("text/event-stream"), TOKEN, DONE, response_body())
    dispatch = Dispatch(observers=[recorder], on_lag=lambda _: None)
    middleware = LedgerMiddleware(app, settings=Settings(), dispatch=dispatch, clock=clock.clock)
    trio.run(middleware, http_scope(), server.receive, server.send)

    record = recorder.record
    assert ("ok", HELD, None) == (record.outcome, record.send_wait, record.loop_lag)


def inbound(body):
    """A `receive` without asyncio in it."""

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


def test_a_cancelled_send_leaves_nothing_to_collect():
    """An error that went through holds no frame that holds it: memory does not wait for the GC."""
    gone = []

    async def held():
        await conversation("a")

    class Cancelled(Exception):  # noqa: N818 - named as asyncio names it
        """An error that can be held weakly."""

    def cancel():
        outer = await_by_hand(held(), [])
        outer.send(None)
        try:
            outer.throw(Cancelled())
        except Cancelled as error:
            gone.append(weakref.ref(error))

    gc.collect()
    gc.disable()
    try:
        cancel()
        assert gone[0]() is None
    finally:
        gc.enable()
