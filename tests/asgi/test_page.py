"""The page of our own: for this machine only, and never in the way of the app."""

import asyncio
import json

import pytest

from llm_trace.asgi.page import with_page
from llm_trace.testing import Server, http_scope, response_body, response_start


async def app(_scope, _receive, send):
    """The app's own answer."""
    await send(response_start(status=404))
    await send(response_body(b"the app's"))


def ask(path="/debug/llm_trace", method="GET", client=("127.0.0.1", 5)):
    """Status and body."""
    server, scope = Server(), http_scope(path, method=method, client=client)
    paged = with_page(app, "/debug/llm_trace", lambda: {"shown": True})
    asyncio.run(paged(scope, server.receive, server.send))
    return server.sent[0]["status"], server.body


@pytest.mark.parametrize("client", [("127.0.0.1", 5), ("::1", 5)])
def test_a_caller_on_this_machine_sees_it(client):
    """As JSON."""
    status, body = ask(client=client)

    assert (status, json.loads(body)) == (200, {"shown": True})


@pytest.mark.parametrize(
    "asked",
    [
        {"client": ("10.0.0.1", 5)},
        {"client": None},
        {"client": ("testclient", 5)},
        {"method": "POST"},
        {"path": "/debug/llm_trace/"},
    ],
)
def test_anybody_else_gets_what_the_app_has_there(asked):
    """Also over a socket without addresses, with another method, or at another path."""
    assert ask(**asked) == (404, b"the app's")


def test_other_protocols_pass():
    """A WebSocket at that path is the app's."""
    heard = []

    async def served(scope, _receive, _send):
        heard.append(scope["type"])

    asyncio.run(with_page(served, "/x", dict)({"type": "websocket", "path": "/x"}, None, None))

    assert heard == ["websocket"]
