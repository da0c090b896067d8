"""The simulated engine's wire: what an OpenAI client would get."""

import asyncio
import json

import httpx
import pytest

from llm_trace.demo.batcher import Batcher, Pace
from llm_trace.demo.simulated import build


def ask(*bodies):
    """Ask one engine these questions in turn."""

    async def main():
        transport = httpx.ASGITransport(build(Batcher(pace=Pace(0.0, 0.0))))
        async with httpx.AsyncClient(base_url="http://engine", transport=transport) as client:
            return [await client.post("/v1/chat/completions", content=body) for body in bodies]

    return asyncio.run(main())


def events(answer):
    """Read the events of a stream."""
    lines = answer.text.split("\n\n")
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]


def chat(content="one two three " * 50):
    """Build a chat request for five tokens."""
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 5}
    return json.dumps(body).encode()


def test_a_stream_has_tokens_an_end_and_usage():
    """The first delta names the role, the last two events are finish and usage."""
    (answer,) = ask(chat())
    *tokens, finish, usage = events(answer)

    assert answer.text.endswith("data: [DONE]\n\n")
    assert tokens[0]["choices"][0]["delta"]["role"] == "assistant"
    assert all(token["choices"][0]["delta"]["content"] for token in tokens)
    assert finish["choices"][0]["finish_reason"] == "length"
    assert usage["usage"]["completion_tokens"] == len(tokens) == 5


def test_a_repeated_prompt_is_reported_as_cached():
    """Usage tells how much of the prompt the prefix cache held."""
    first, second = (events(answer)[-1]["usage"] for answer in ask(chat(), chat()))

    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["prompt_tokens_details"]["cached_tokens"] > 0.8 * second["prompt_tokens"]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"messages": [1]}'])
def test_a_bad_request_is_told(body):
    """What is no chat is status 400."""
    assert ask(body)[0].status_code == 400
