"""The client's own stopwatch: what counts as a token, and what as a failure."""

import asyncio
import json

import pytest

from llm_trace.demo import client
from llm_trace.demo.client import ask

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
ROLE = b'data: {"choices": [{"delta": {"role": "assistant", "content": ""}}]}\n\n'
TOKEN = b'data: {"choices": [{"delta": {"content": "hi"}}]}\n\n'
END = b'data: {"choices": [], "usage": {}}\n\ndata: [DONE]\n\n'


def chunked(*pieces):
    """Frame pieces as HTTP chunks, with the one that ends the body."""
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (*pieces, b""))


def served(*writes):
    """Ask a server that answers with these writes, and return answer and request."""

    async def main():
        requests = []

        async def serve(reader, writer):
            requests.append(await reader.readuntil(b"\r\n\r\n"))
            for write in writes:
                writer.write(write)
                await writer.drain()
            writer.close()
            await writer.wait_closed()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            answer = await ask(port, "key", "unique", {"stream": True})
        return answer, requests[0]

    return asyncio.run(main())


def test_the_first_token_is_the_first_content():
    """A role, an empty delta and a comment are no token."""
    answer, request = served(HEAD, chunked(b": ping\n\n", ROLE, TOKEN, TOKEN, END))

    assert answer.ok
    assert answer.chunks == 2
    assert 0 < answer.first_byte <= answer.ttft <= answer.last
    assert f"00-{answer.trace_id}-{answer.span_id}-01".encode() in request


def test_events_may_be_cut_anywhere():
    """Chunk borders are no event borders."""
    stream = ROLE + TOKEN + END
    answer, _ = served(HEAD, chunked(*(stream[at : at + 1] for at in range(len(stream)))))

    assert (answer.ok, answer.chunks) == (True, 1)


@pytest.mark.parametrize(
    ("writes", "fault"),
    [
        ([HEAD, chunked(ROLE, END)], "no token"),
        ([HEAD, chunked(TOKEN, b'data: {"error": {"message": "gone"}}\n\n')], "gone"),
        ([HEAD, b"ff\r\ncut"], "IncompleteRead"),
        ([b"HTTP/1.1 502 Bad\r\nContent-Length: 5\r\n\r\nsorry"], "status 502: sorry"),
        ([b"nonsense\r\n\r\n"], "Error"),
        ([HEAD, chunked(b"data: {oops\n\n")], "JSONDecodeError"),
        ([], "IncompleteRead"),
    ],
)
def test_every_failure_is_part_of_the_answer(writes, fault):
    """Nothing is raised: the answer says what went wrong and is not ok."""
    answer, _ = served(*writes)

    assert not answer.ok
    assert fault in answer.error


def test_a_server_that_is_absent_is_a_failure(unused_port):
    """A refused connection is counted, not raised."""
    answer = asyncio.run(ask(unused_port, "key", "cold", {}))

    assert not answer.ok
    assert "refused" in answer.error.lower()


def test_a_server_that_never_answers_is_given_up(monkeypatch):
    """The load cannot hang."""
    monkeypatch.setattr(client, "TIMEOUT", 0.05)

    async def main():
        async def silent(reader, writer):
            await reader.read()
            writer.close()

        async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
            return await ask(server.sockets[0].getsockname()[1], "key", "cold", {})

    assert "within 0.05 s" in asyncio.run(main()).error


def test_the_body_is_json():
    """What is asked is sent as it is."""
    assert json.loads(client._request("k", {"a": 1}, client.Answer("x")).split(b"\r\n\r\n")[1]) == {
        "a": 1
    }
