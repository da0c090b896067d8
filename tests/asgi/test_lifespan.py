"""The last spans are sent before the server says that its shutdown is complete."""

import asyncio
import threading
from contextlib import asynccontextmanager

import pytest
import trio
from fastapi import FastAPI
from starlette.applications import Starlette

from llm_trace.asgi.middleware import LedgerMiddleware
from llm_trace.core import faults
from llm_trace.core.dispatch import Dispatch
from llm_trace.settings import Settings


def live(app, scope=None, run=asyncio.run):
    """Start and stop `app` as a server does; the types of its messages."""
    inbound = iter(["lifespan.startup", "lifespan.shutdown"])
    sent = []

    async def receive():
        return {"type": next(inbound)}

    async def send(message):
        sent.append(message["type"])

    async def serve():
        await app(scope or {"type": "lifespan", "state": {}}, receive, send)

    run(serve() if run is asyncio.run else serve)
    return sent


def traced(make, happened, **more):
    """An app of this kind with the middleware, whose flush is noted."""

    def flush():
        happened.append(("flushed", threading.current_thread() is threading.main_thread()))

    app = make(**more)
    app.add_middleware(LedgerMiddleware, settings=Settings(), dispatch=Dispatch(flush=flush))
    return app


@pytest.mark.parametrize("run", [asyncio.run, trio.run])
@pytest.mark.parametrize("make", [Starlette, FastAPI])
def test_the_flush_comes_after_the_apps_own_shutdown(make, run):
    """The app's lifespan runs as it is; then what is queued is sent, off the event loop."""
    happened = []

    @asynccontextmanager
    async def lifespan(app):
        happened.append("started")
        yield {"given": app.title if make is FastAPI else ""}
        happened.append("stopped")

    sent = live(traced(make, happened, lifespan=lifespan), run=run)

    assert ["lifespan.startup.complete", "lifespan.shutdown.complete"] == sent
    assert ["started", "stopped", ("flushed", False)] == happened


def test_each_life_of_an_app_flushes_once():
    """A test client starts an app again and again: no flush is added to a flush."""
    happened = []
    app = traced(Starlette, happened)

    live(app)
    live(app)

    assert [("flushed", False)] * 2 == happened


def test_a_failing_start_flushes_and_fails():
    """What the app's lifespan raises is told to the server as ever."""
    happened = []

    @asynccontextmanager
    async def lifespan(_app):
        raise ValueError("no model")
        yield

    with pytest.raises(ValueError, match="no model"):
        live(traced(Starlette, happened, lifespan=lifespan))

    assert [("flushed", False)] == happened


class Bare:
    """An app without a router."""


@pytest.mark.parametrize("run", [asyncio.run, trio.run])
@pytest.mark.parametrize("scope", [{}, {"app": None}, {"app": Bare()}])
@pytest.mark.parametrize("last", ["lifespan.shutdown.complete", "lifespan.shutdown.failed"])
def test_the_last_word_of_any_other_app_waits_for_the_flush(last, scope, run):
    """Litestar, Quart, or an app that was wrapped by hand: the server ends at that word."""
    happened = []

    async def app(_scope, receive, send):
        for word in ("lifespan.startup.complete", last):
            await receive()
            happened.append(word)
            await send({"type": word})

    def flush():
        happened.append(("flushed", threading.current_thread() is threading.main_thread()))

    traced = LedgerMiddleware(app, settings=Settings(), dispatch=Dispatch(flush=flush))
    sent = live(traced, {"type": "lifespan", **scope}, run=run)

    assert ["lifespan.startup.complete", last] == sent
    assert [*sent, ("flushed", False)] == happened


def test_an_app_that_is_not_traced_keeps_its_last_word():
    """Nobody has anything to send."""

    async def app(_scope, _receive, send):
        await send({"type": "lifespan.shutdown.complete"})

    off = LedgerMiddleware(
        app, settings=Settings(enabled=False), dispatch=Dispatch(flush=pytest.fail)
    )

    assert ["lifespan.shutdown.complete"] == live(off)


class SealedRouter:
    """Refuses a new lifespan."""

    lifespan_context = property(lambda self: print)


def test_a_router_that_refuses_is_contained():
    """The app starts and stops; the fault is counted."""
    app = Bare()
    app.router = SealedRouter()
    before = faults.internal["begin"]

    async def serve(_scope, receive, send):
        await receive()
        await send({"type": "lifespan.startup.complete"})

    middleware = LedgerMiddleware(serve, settings=Settings(), dispatch=Dispatch())
    with faults.production():
        sent = live(middleware, {"type": "lifespan", "app": app})

    assert (["lifespan.startup.complete"], before + 1) == (sent, faults.internal["begin"])
