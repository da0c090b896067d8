"""One request on the client's clock: what is a token, what a failure, what was given up."""

import asyncio

import pytest

from llm_trace.bench import exchange
from llm_trace.bench.exchange import ask
from llm_trace.bench.server import new_client
from llm_trace.core import inband

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
ROLE = b'data: {"choices": [{"delta": {"role": "assistant", "content": ""}}]}\n\n'
TOKEN = b'data: {"choices": [{"delta": {"content": "hi"}}]}\n\n'
USAGE = (
    b'data: {"choices": [], "usage": {"prompt_tokens": 40, "completion_tokens": 2, '
    b'"prompt_tokens_details": {"cached_tokens": 32}}}\n\n'
)
END = b"data: [DONE]\n\n"
NOT_OURS = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi"


def chunked(*pieces):
    """Frame pieces as HTTP chunks, with the one that ends the body."""
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (*pieces, b""))


def answered(*writes, patience=30.0, hang=False):
    """Ask a server that answers with these writes; the sample."""

    async def main():
        async def serve(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            for write in writes:
                writer.write(write)
                await writer.drain()
            if hang:
                await reader.read()
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            async with new_client(1, remote=False) as client:
                return await ask(client, url, b"", {}, patience)

    return asyncio.run(main())


def test_a_whole_answer():
    """Tokens are stamped, a role is none, and usage is what the server said."""
    sample = answered(HEAD, chunked(b": ping\n\n", ROLE, TOKEN, TOKEN, USAGE, END))

    assert (sample.outcome, sample.reason) == ("ok", None)
    assert (sample.prompt_tokens, sample.cached_tokens, sample.output_tokens) == (40, 32, 2)
    assert 0 < sample.ttft <= sample.duration
    assert sample.tpot == (sample.last - sample.first) / 1e9


def test_a_ledger_in_the_answer_is_the_servers_own_ttft():
    """Its phases up to the first token; the one at the end is of the whole answer."""
    ledgers = [
        inband.comment("first_token", {"queue_wait": 2_000_000, "prefill": 5_000_000}),
        inband.comment("end", {"queue_wait": 2_000_000, "prefill": 5_000_000, "decode": 9_000_000}),
    ]
    sample = answered(HEAD, chunked(ledgers[0] + TOKEN, TOKEN, USAGE, ledgers[1] + END))

    assert sample.phases == {"queue_wait": 0.002, "prefill": 0.005}
    assert sample.server_ttft == pytest.approx(0.007)
    assert sample.outside == pytest.approx(sample.ttft - 0.007)


def test_events_may_be_cut_anywhere():
    """A token has come with the bytes that complete it."""
    stream = ROLE + TOKEN + USAGE + END
    sample = answered(HEAD, chunked(*(stream[at : at + 1] for at in range(len(stream)))))

    assert (sample.outcome, sample.output_tokens) == ("ok", 2)


@pytest.mark.parametrize(
    ("writes", "reason"),
    [
        ([HEAD, chunked(ROLE, END)], "no token"),
        ([HEAD, chunked(TOKEN, b'data: {"error": {"type": "gone"}}\n\n')], "error gone"),
        ([HEAD, b"ff\r\ncut"], "RemoteProtocolError"),
        ([b"nonsense\r\n\r\n"], "RemoteProtocolError"),
        ([NOT_OURS], "no stream"),
        ([], "RemoteProtocolError"),
    ],
)
def test_every_failure_is_part_of_the_sample(writes, reason):
    """Nothing is raised; the reason is a word or two."""
    sample = answered(*writes)

    assert (sample.outcome, sample.reason) == ("failed", reason)
    assert sample.ended >= sample.started


def test_a_refusal_keeps_the_servers_words():
    """As many as a person needs."""
    sample = answered(b"HTTP/1.1 429 Busy\r\nContent-Length: 1000\r\n\r\n" + b"x" * 1000)

    assert (sample.outcome, sample.reason) == ("failed", "status 429")
    assert sample.said.startswith("xxx")
    assert len(sample.said) == 300


def test_an_answer_without_end_is_cut(monkeypatch):
    """The benchmark's memory is bounded."""
    monkeypatch.setattr(exchange, "MAX_ANSWER", 100)

    assert answered(HEAD, chunked(*[TOKEN] * 9)).reason == "answer too long"


def test_a_server_that_stays_silent_is_given_up():
    """It is a cancellation: the client left."""
    sample = answered(HEAD, patience=0.05, hang=True)

    assert (sample.outcome, sample.reason, sample.ttft) == ("cancelled", "timeout", None)


def test_a_cancelled_answer_keeps_its_first_token():
    """It had one."""
    sample = answered(HEAD, b"%x\r\n%s\r\n" % (len(TOKEN), TOKEN), patience=0.2, hang=True)

    assert sample.outcome == "cancelled"
    assert sample.ttft > 0


def test_a_server_that_is_absent_is_a_failure():
    """A refused connection is counted."""

    async def main():
        async with new_client(1, remote=False) as client:
            return await ask(client, "http://127.0.0.1:1/", b"", {}, 5.0)

    sample = asyncio.run(main())
    assert (sample.outcome, sample.reason) == ("failed", "ConnectError")
