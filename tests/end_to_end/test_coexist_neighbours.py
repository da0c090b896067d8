"""Beside Sentry, Logfire and OpenTelemetry's middleware, in real uvicorn processes."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress

import pytest
from programs import LOOPBACK, eventually, free_port
from scrape import scrape
from stamped_client import ask
from tap import SERVER
from uvicorn_server import CHAT, exports_to, serving

from llm_trace import semconv as s

BODY = {"tokens": 3, "stream": True}


@pytest.mark.parametrize("factory", ["logfire_before", "logfire_after"])
def test_beside_logfire(factory, tap, programs, tmp_path):
    """Spans go through its provider, under its server span, and it keeps its own."""
    server = serving(programs, tmp_path, f"neighbours:{factory}", **exports_to(tap.endpoint))

    answer = ask(server.port, CHAT, BODY)

    root = tap.root(answer.trace_id)
    (top,) = eventually(
        lambda: [x for x in tap.trace(answer.trace_id) if x.kind == SERVER], "no server span"
    )
    assert top.parent_id == answer.span_id
    assert top.span_id in {root.span_id, root.parent_id}
    assert server.text().count("Traceback") == 0
    assert scrape(server.port).total(s.REQUESTS.prometheus) == 1


def test_beside_sentry(tap, programs, tmp_path):
    """Both see the request and its failure; neither changes what the client gets."""
    dsn = f"http://key@{LOOPBACK}:{free_port()}/1"
    env = exports_to(tap.endpoint, TEST_SENTRY_DSN=dsn)
    server = serving(programs, tmp_path, "neighbours:sentry", **env)

    answer = ask(server.port, CHAT, BODY, headers={"sentry-trace": f"{'a' * 32}-{'b' * 16}-1"})
    with pytest.raises(EOFError, match="hung up"):
        ask(server.port, CHAT, {**BODY, "dies_after": 1})

    root = tap.root(answer.trace_id)
    assert (root.parent_id, root.kind) == (answer.span_id, SERVER)
    page = eventually(
        lambda: page if (page := scrape(server.port)).total(s.REQUESTS.prometheus) == 2 else None,
        "the failure was not counted",
    )
    assert page.by("llm_trace_outcome", s.REQUESTS.prometheus) == {"ok": 1, "error": 1}


class Client:
    """A client's own place in a trace."""

    def __init__(self):
        self.trace_id, self.span_id = secrets.token_hex(16), secrets.token_hex(8)
        self.header = f"traceparent: 00-{self.trace_id}-{self.span_id}-01\r\n"


def pipelined(port, *heads):
    """Requests written at once on one connection: the second begins while the first still ends."""
    body = b'{"tokens": 2, "stream": true}'

    async def exchange():
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        for head in heads:
            lines = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n{head}\r\n"
            writer.write(lines.encode() + body)
        got = b""
        while got.count(b"\r\n0\r\n\r\n") < len(heads):
            got += await asyncio.wait_for(reader.read(1 << 16), 30)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        return got

    return asyncio.run(exchange())


@pytest.mark.parametrize(
    "factory",
    ["apps:create", "neighbours:own_provider", "neighbours:asgi_inside", "neighbours:asgi_outside"],
)
@pytest.mark.parametrize("http", ["h11", "httptools"])
def test_no_stale_parent_on_a_kept_connection(factory, http, tap, programs, tmp_path):
    """Each of three pipelined requests is below its own client, whatever is current by then."""
    env = exports_to(tap.endpoint)
    server = serving(programs, tmp_path, factory, flags=("--http", http), **env)
    clients = [Client(), Client(), Client()]

    got = pipelined(server.port, *(client.header for client in clients))

    assert got.count(b"200 OK") == 3
    for client in clients:
        root = tap.root(client.trace_id)
        family = {span.span_id: span for span in tap.trace(client.trace_id)}
        assert family.get(root.parent_id, root).parent_id == client.span_id


@pytest.mark.parametrize("factory", ["apps:create", "neighbours:own_provider"])
def test_requests_of_nobody_are_traces_of_their_own(factory, tap, programs, tmp_path):
    """Without a client's header each pipelined request is the root of its own trace."""
    server = serving(programs, tmp_path, factory, **exports_to(tap.endpoint))

    pipelined(server.port, "", "")

    roots = eventually(
        lambda: found if len(found := [x for x in tap.spans() if x.is_root]) == 2 else None,
        "two roots",
        log=server,
    )
    assert len({root.trace_id for root in roots}) == 2
    tops = [x for x in tap.spans() if not x.parent_id]
    assert {x.trace_id for x in tops} == {x.trace_id for x in roots}
