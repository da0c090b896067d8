"""A server that must not start hears it in its own protocol."""

import asyncio

from llm_trace.asgi.lifespan import refuse_start


def test_the_start_is_answered_with_a_failure():
    """The server asks, and gets the sentence that it logs before it ends."""
    inbound, sent = iter([{"type": "lifespan.startup"}]), []

    async def receive():
        return next(inbound)

    async def send(message):
        sent.append(message)

    asyncio.run(refuse_start("setting x cannot be used", receive, send))

    assert next(inbound, None) is None
    assert sent == [{"type": "lifespan.startup.failed", "message": "setting x cannot be used"}]
