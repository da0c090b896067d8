"""One streamed chat answer, as vLLM writes it, and the request that asks for it."""

from __future__ import annotations

import json
from functools import cache
from typing import Final

from llm_trace.asgi.types import Scope
from llm_trace.testing import http_scope

MODEL: Final = "meta-llama/Llama-3.1-8B-Instruct"
PATH: Final = "/v1/chat/completions"

BODY: Final = json.dumps(
    {
        "model": MODEL,
        "messages": [
            {"role": "system", "content": "Answer from the documents, and name them."},
            {"role": "user", "content": "Which wait made the first token slow? " * 8},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.7,
        "max_tokens": 1024,
    }
).encode()

# The words of an answer: of 32, two begin a line and one holds a quote, as prose does. Escapes take
# the detector off its fastest path, so leaving them out would flatter it.
_WORDS: Final = (
    *(" the", " queue", " was", " full", ",", " so", " prefill", " waited", " for", " decode", "."),
    *("\n\n", " A", " scheduler", " admits", " what", " fits", " its", " budget", " of", " tokens"),
    *(":", " 8", "192", " per", " step", " here", ".", " See", ' "', "queue_wait", " above", "\n"),
)


def chunks(tokens: int) -> tuple[bytes, ...]:
    """The events of an answer of `tokens` tokens: role, tokens, finish, usage and terminator."""
    usage = {"prompt_tokens": 96, "completion_tokens": tokens, "total_tokens": 96 + tokens}
    return (
        _event(_choice({"role": "assistant", "content": ""})),
        *(_token(_WORDS[n % len(_WORDS)]) for n in range(tokens)),
        _event(_choice({"content": ""}, "stop")),
        _event([], usage),
        b"data: [DONE]\n\n",
    )


def request() -> Scope:
    """A request for such an answer, with the headers that an HTTP client and a gateway add."""
    return http_scope(
        PATH,
        headers=(
            (b"host", b"llm.example.com"),
            (b"user-agent", b"OpenAI/Python 1.99.0"),
            (b"accept", b"application/json"),
            (b"accept-encoding", b"gzip, deflate"),
            (b"content-type", b"application/json"),
            (b"content-length", str(len(BODY)).encode()),
            (b"authorization", b"Bearer none"),
            (b"x-request-id", b"6ad1a0c8-5b0f-4a4e-9d5b-0d9cf2c4c1a7"),
        ),
    )


@cache
def _token(word: str) -> bytes:
    # Equal chunks are one object, so that it is in the processor's cache when it is sent: there,
    # the server has just written it.
    return _event(_choice({"content": word}))


def _choice(delta: dict[str, str], finish_reason: str | None = None) -> list[dict[str, object]]:
    return [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}]


def _event(choices: list[dict[str, object]], usage: dict[str, int] | None = None) -> bytes:
    chunk: dict[str, object] = {
        "id": "chatcmpl-8a7c5fd8e5d04d21a7a2a5e2a5b6c7d8",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": MODEL,
        "choices": choices,
    }
    if usage is not None:
        chunk["usage"] = usage
    return b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n"
