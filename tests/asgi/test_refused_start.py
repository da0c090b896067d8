"""A server that must not start hears it in its own protocol."""

import asyncio

from llm_trace.asgi.lifespan import refusing
from llm_trace.testing import FakeClock, http_scope, response_body, scripted

FAULT = "setting x cannot be used"


def served(scope):
    """What a refusing app sends for this scope."""
    inbound, sent = iter([{"type": "lifespan.startup"}]), []

    async def receive():
        return next(inbound)

    async def send(message):
        sent.append(message)

    app = scripted(FakeClock(), response_body(b"served"), reads=False)
    asyncio.run(refusing(FAULT, app)(scope, receive, send))
    return sent


def test_the_start_is_answered_with_a_failure():
    """The server asks, and gets the sentence that it logs before it ends."""
    assert [{"type": "lifespan.startup.failed", "message": FAULT}] == served({"type": "lifespan"})


def test_without_a_start_requests_are_served():
    """A server that starts no lifespans serves the app as it came."""
    assert [response_body(b"served")] == served(http_scope())
