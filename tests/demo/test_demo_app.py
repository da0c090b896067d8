"""The RAG service: its gate, its prompt, its stream, and an engine that fails."""

import asyncio
import json

import httpx
import pytest

from llm_trace.demo.app import build

URL = "/v1/chat/completions"
KEY = {"Authorization": "Bearer secret"}
EVENTS = [b'data: {"choices": [{"delta": {"content": "hi"}}]}\n\n', b"data: [DONE]\n\n"]


class Stream(httpx.AsyncByteStream):
    """An engine's stream that may break after its pieces."""

    def __init__(self, pieces, *, breaks=False):
        self.pieces, self.breaks = pieces, breaks

    async def __aiter__(self):
        """Yield the pieces, then break when told to."""
        for piece in self.pieces:
            yield piece
        if self.breaks:
            raise httpx.ReadError("gone")


def ask(engine, body, headers=KEY):
    """Ask the service once, with `engine` as the handler of its upstream requests."""

    async def main():
        upstream = httpx.AsyncClient(
            base_url="http://engine", transport=httpx.MockTransport(engine), trust_env=False
        )
        app = build(upstream, "tiny", "secret")
        client = httpx.AsyncClient(base_url="http://app", transport=httpx.ASGITransport(app))
        async with app.router.lifespan_context(app), client:
            return await client.post(URL, json=body, headers=headers)

    return asyncio.run(main())


def chat(*turns, **more):
    """Build a chat request."""
    messages = [{"role": "user", "content": turn} for turn in turns or ["What is yield?"]]
    return {"messages": messages, "stream": True, **more}


def test_the_stream_is_passed_on_byte_for_byte():
    """What the engine says reaches the client unaltered."""
    answer = ask(lambda _: httpx.Response(200, stream=Stream(EVENTS)), chat())

    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.content == b"".join(EVENTS)


def test_the_engine_gets_passages_and_the_trace():
    """The prompt holds what was retrieved, and the headers a parent for the engine's spans."""
    seen = []

    def engine(request):
        seen.append(request)
        return httpx.Response(200, stream=Stream(EVENTS))

    trace = "0af7651916cd43dd8448eb211c80319c"
    parent = {"Traceparent": f"00-{trace}-b7ad6b7169203331-01"}
    ask(engine, chat("What is yield?", documents=3), KEY | parent)
    sent = json.loads(seen[0].content)

    assert [message["role"] for message in sent["messages"]] == ["system", "user"]
    assert sent["messages"][0]["content"].count("\n\n[") == 3
    assert sent["stream_options"] == {"include_usage": True}
    assert seen[0].headers["traceparent"].startswith(f"00-{trace}-")


def test_without_documents_nothing_is_retrieved():
    """The system message then holds its instruction alone."""
    seen = []

    def engine(request):
        seen.append(json.loads(request.content))
        return httpx.Response(200, stream=Stream(EVENTS))

    ask(engine, chat(documents=0))

    assert "[" not in seen[0]["messages"][0]["content"]


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (chat(), {"Authorization": "Bearer wrong"}, 401),
        (chat(stream=False), KEY, 422),
        ({"stream": True, "messages": []}, KEY, 422),
        (chat(documents=99), KEY, 422),
    ],
)
def test_what_is_not_admitted_never_reaches_the_engine(body, headers, status):
    """A wrong key or a wrong request ends at the gate."""

    def engine(_request):
        raise AssertionError("asked")

    assert ask(engine, body, headers).status_code == status


def refuse(_request):
    """Be an engine that is down."""
    raise httpx.ConnectError("refused")


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        (refuse, "ConnectError"),
        (lambda _: httpx.Response(503, text="full"), "status 503"),
        (lambda _: httpx.Response(200, stream=Stream([], breaks=True)), "ReadError"),
    ],
)
def test_an_engine_that_fails_at_once_is_a_clean_502(engine, said):
    """The client learns that it was the engine, and gets no traceback."""
    answer = ask(engine, chat())

    assert answer.status_code == 502
    assert answer.json()["error"]["message"] == f"The engine could not answer ({said})."


def test_an_engine_that_fails_midway_ends_the_stream_with_an_error():
    """The status is sent by then, so the error is an event."""
    stream = Stream(EVENTS[:1], breaks=True)
    answer = ask(lambda _: httpx.Response(200, stream=stream), chat())

    assert answer.status_code == 200
    assert b'"code": 502' in answer.content.removeprefix(EVENTS[0])
