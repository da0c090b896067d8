"""A loop's timer: it measures what blocks the loop, and goes with it."""

import asyncio
import gc
import threading
import time
import weakref
from contextvars import ContextVar

import pytest

from llm_trace.asgi.middleware import LedgerMiddleware
from llm_trace.asgi.ticker import INTERVAL, lag_here
from llm_trace.core import faults
from llm_trace.core.clock import SYSTEM
from llm_trace.core.dispatch import Dispatch
from llm_trace.settings import Settings
from llm_trace.testing import (
    FakeClock,
    Recorder,
    Server,
    http_scope,
    response_body,
    response_start,
    sse,
)

BLOCK = 0.12
TOKEN = sse({"choices": [{"index": 0, "delta": {"content": " a"}}]})


uvloop = pytest.importorskip("uvloop", reason="uvloop is not for this Python")

LOOPS = (
    pytest.param(asyncio.new_event_loop, id="asyncio"),
    pytest.param(uvloop.new_event_loop, id="uvloop"),
)
"""Every kind of loop that uvicorn may run on."""


def run(make, main):
    """Run `main` in a new loop, as a server would, to its clean end."""
    loop = make()
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(main())
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        asyncio.set_event_loop(None)
        loop.close()


def block(seconds):
    """Hold the loop up, as a synchronous call in async code does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


@pytest.mark.parametrize("make", LOOPS)
def test_a_block_is_heard_by_its_length(make):
    """A callback that runs long makes the timer late by what was left of it."""
    heard = []

    async def main():
        lag_here(SYSTEM, heard.append)
        await asyncio.sleep(INTERVAL / 10)
        block(INTERVAL + BLOCK)
        await asyncio.sleep(2 * INTERVAL)

    run(make, main)

    assert BLOCK * 0.8 * 1e9 < max(heard)


class Session:
    """What an app keeps in a context variable while a request runs."""


@pytest.mark.parametrize("make", LOOPS)
def test_the_timer_keeps_nothing_of_the_request_that_set_it(make):
    """What the app's context held by then goes with the request."""
    held = ContextVar("held")

    async def request():
        held.set(Session())
        lag_here(SYSTEM, ignored)
        return weakref.ref(held.get())

    async def main():
        session = await asyncio.create_task(request())
        await asyncio.sleep(2 * INTERVAL)
        gc.collect()
        return session()

    assert run(make, main) is None


def ignored(_late):
    """Heard, and nothing done."""


@pytest.mark.parametrize("make", LOOPS)
def test_a_request_knows_what_blocked_it_before_its_first_token(make):
    """The block is on the record of who waited, even of the request that blocked the loop."""
    recorder, serving = Recorder(), []

    async def app(_scope, _receive, send):
        await send(response_start("text/event-stream"))
        block(INTERVAL + BLOCK)
        await send(TOKEN)
        block(10 * BLOCK)  # no part of the wait for the first token
        await send(response_body())

    async def patient(_scope, _receive, send):
        await send(response_start("text/event-stream"))
        await asyncio.sleep(2 * INTERVAL)
        await send(TOKEN)
        await send(response_body())

    async def main():
        dispatch = Dispatch(observers=[recorder], on_lag=lambda _: None)
        for each in (patient, app):
            middleware = LedgerMiddleware(each, settings=Settings(), dispatch=dispatch)
            serving.append(
                asyncio.ensure_future(middleware(http_scope(), Server().receive, Server().send))
            )
        await asyncio.gather(*serving)

    run(make, main)

    blocked, waited = recorder.records
    assert BLOCK * 0.8 * 1e9 < blocked.loop_lag < BLOCK * 8 * 1e9
    assert BLOCK * 0.8 * 1e9 < waited.loop_lag


@pytest.mark.parametrize("make", LOOPS)
def test_an_idle_loop_has_no_lag(make):
    """The timer runs again and again, and where no time passes beside it, it is on time."""
    heard, clock = [], FakeClock()

    async def main():
        third = asyncio.Event()

        def hear(late):
            heard.append(late)
            if len(heard) == 3:
                third.set()

        lag = lag_here(clock.clock, hear)
        await third.wait()
        return lag.longest(clock.now, clock.now)

    assert 0 == run(make, main)
    assert {0} == set(heard)


@pytest.mark.parametrize("make", LOOPS)
def test_one_timer_serves_a_loop_and_goes_with_it(make):
    """However many ask, a loop has one timer; nothing keeps a loop that is done."""
    gone = []

    async def main():
        gone.append(weakref.ref(asyncio.get_running_loop()))
        return {id(lag_here(SYSTEM, lambda _: None)) for _ in range(3)}

    assert 1 == len(run(make, main))
    gc.collect()
    assert gone[0]() is None


def test_each_thread_has_the_lag_of_its_own_loop():
    """Servers that run loops in threads have a timer in each."""
    found = []

    async def main():
        found.append(lag_here(SYSTEM, lambda _: None))

    threads = [threading.Thread(target=run, args=(asyncio.new_event_loop, main)) for _ in "ab"]
    for thread in threads:
        thread.start()
        thread.join()

    assert 2 == len({id(lag) for lag in found})


def test_without_a_loop_of_asyncio_nothing_is_measured():
    """Under trio, or nothing at all, the lag is unknown."""
    assert lag_here(SYSTEM, lambda _: None) is None


def test_where_nobody_listens_no_timer_is_set():
    """A middleware without metrics costs the loop nothing."""

    async def main():
        return lag_here(SYSTEM, None)

    assert run(asyncio.new_event_loop, main) is None


def test_the_end_of_a_loop_says_nothing(caplog):
    """No task is cancelled and nothing is logged when a loop ends, in debug mode either."""

    async def main():
        lag_here(SYSTEM, lambda _: None)
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert set() == asyncio.run(main(), debug=True)
    assert [] == [r for r in caplog.records if r.name == "asyncio" and r.levelname != "DEBUG"]


def test_a_listener_that_fails_does_not_stop_the_timer():
    """Metrics that break cost nobody the loop, nor the next run of the timer."""
    heard = []

    async def main():
        third = asyncio.Event()

        def broken(late):
            heard.append(late)
            if len(heard) == 3:
                third.set()
            raise RuntimeError("no metrics today")

        lag_here(SYSTEM, broken)
        await third.wait()

    before = faults.internal["ticker"]
    with faults.production():
        asyncio.run(main())

    assert before + 3 == faults.internal["ticker"]


def test_a_thread_that_goes_from_loop_to_loop_finds_the_timer_again():
    """Tests and notebooks run loops in turns: a loop still has one timer."""
    loops = [asyncio.new_event_loop() for _ in range(2)]

    async def main():
        return lag_here(SYSTEM, lambda _: None)

    first, other, again = (loops[n].run_until_complete(main()) for n in (0, 1, 0))
    for loop in loops:
        loop.close()

    assert first is again
    assert first is not other


def test_a_loop_that_cannot_be_held_weakly_is_left_alone():
    """Loops of other makers serve requests all the same; their lag is unknown."""

    class Odd:
        """A running loop that has no room for a weak reference."""

        __slots__ = ()

    asyncio._set_running_loop(Odd())
    try:
        assert lag_here(SYSTEM, lambda _: None) is None
    finally:
        asyncio._set_running_loop(None)
