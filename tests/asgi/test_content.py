"""Content: nothing by default; asked for, it is on the root span, bounded, and still JSON."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_trace import semconv as s
from llm_trace.asgi.content import ContentCopy, answered, asked, encode
from llm_trace.core import faults
from llm_trace.core.identity import TraceIdentity
from llm_trace.core.tracer import NoTracer
from llm_trace.observers.root import root_attributes
from llm_trace.testing import (
    FakeClock,
    Recorder,
    drive,
    http_scope,
    response_body,
    response_start,
    scripted,
    sse,
)

BODY = json.dumps(
    {
        "model": "m",
        "stream": True,
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "image_url"}]},
        ],
    }
).encode()
ASKED = [
    {"role": "system", "parts": [{"type": "text", "content": "be brief"}]},
    {"role": "user", "parts": [{"type": "text", "content": "hi"}, {"type": "image_url"}]},
]


class Traced(NoTracer):
    """Every request has a place in a trace."""

    def __init__(self, *, sampled=True):
        self.sampled = sampled

    def begin(self, headers, name):
        """The place."""
        return TraceIdentity(1, 2, sampled=self.sampled)


def chat(*texts, **fields):
    """A chat chunk for each text, as a stream."""
    events = [sse({"choices": [{"index": 0, "delta": {"content": text}}]}) for text in texts]
    return [response_start("text/event-stream", **fields), *events, sse("[DONE]"), response_body()]


def content_of(*steps, body=BODY, tracer=None, **settings):
    """The content that the root span carries, its JSON read."""
    clock, recorder = FakeClock(), Recorder()
    app = scripted(clock, *steps)
    tracer = tracer or Traced()
    asyncio.run(drive(app, recorder, body=body, clock=clock, tracer=tracer, settings=settings))
    attributes = root_attributes(recorder.record, limit=1024, latency=True)
    named = (s.INPUT_MESSAGES, s.OUTPUT_MESSAGES, s.CONTENT_TRUNCATED)
    found = {name: attributes[name] for name in named if name in attributes}
    return {k: json.loads(v) if isinstance(v, str) else v for k, v in found.items()}


def test_nothing_is_kept_by_default():
    """No setting, no content."""
    assert {} == content_of(*chat("a", "b"))


def test_what_was_asked_and_answered_is_on_the_root():
    """In the form of the conventions: messages with parts, the answer put together."""
    said = [{"role": "assistant", "parts": [{"type": "text", "content": "Hello"}]}]

    found = content_of(*chat("Hel", "lo"), capture_content=True)

    assert {s.INPUT_MESSAGES: ASKED, s.OUTPUT_MESSAGES: said} == found


def test_an_answer_in_lines_of_json_is_put_together_as_well():
    """As Ollama streams it."""
    lines = [
        b'{"message": {"content": "Hel"}, "done": false}\n',
        b'{"response": "lo", "done": true}\n',
    ]
    steps = [
        response_start("application/x-ndjson"),
        *(response_body(each, more=True) for each in lines),
    ]

    found = content_of(*steps, response_body(), capture_content=True)

    said = [{"role": "assistant", "parts": [{"type": "text", "content": "Hello"}]}]
    assert said == found[s.OUTPUT_MESSAGES]


def test_an_unsampled_request_keeps_nothing():
    """Nothing is copied for a span that will not be."""
    assert {} == content_of(*chat("a"), capture_content=True, tracer=Traced(sampled=False))
    assert {} == content_of(*chat("a"), capture_content=True, tracer=NoTracer())


def test_a_request_that_is_no_generation_keeps_nothing():
    """An upload is nobody's prompt."""
    clock, recorder = FakeClock(), Recorder()
    app = scripted(clock, response_start("text/html"), response_body(b"<p>"))
    asyncio.run(
        drive(
            app,
            recorder,
            body=BODY,
            scope=http_scope("/upload"),
            tracer=Traced(),
            settings={"capture_content": True},
        )
    )

    attributes = root_attributes(recorder.record, limit=1024, latency=True)
    assert s.INPUT_MESSAGES not in attributes


def test_compressed_answers_are_not_read():
    """Their bytes are no text; what was asked is still there."""
    found = content_of(*chat("a", content_encoding="gzip"), capture_content=True)

    assert {s.INPUT_MESSAGES} == found.keys() - {s.CONTENT_TRUNCATED}


ANSWERS = {
    "a document": (
        [{"choices": [{"index": 0, "message": {"content": "hi", "reasoning": "hm"}}]}],
        [[("text", "hi"), ("reasoning", "hm")]],
    ),
    "a completion": (
        [{"choices": [{"text": "a"}]}, {"choices": [{"text": "b"}]}],
        [[("text", "ab")]],
    ),
    "two choices": (
        [
            {"choices": [{"index": 1, "delta": {"content": "b"}}]},
            {"choices": [{"index": 0, "delta": {"content": "a"}}]},
        ],
        [[("text", "a")], [("text", "b")]],
    ),
    "reasoning, then an answer": (
        [
            {"choices": [{"delta": {"reasoning_content": "h"}}]},
            {"choices": [{"delta": {"reasoning_content": "m"}}]},
            {"choices": [{"delta": {"content": "yes"}}]},
        ],
        [[("reasoning", "hm"), ("text", "yes")]],
    ),
    "a tool call": (
        [
            {"choices": [{"delta": {"tool_calls": [{"function": {"name": "find"}}]}}]},
            {"choices": [{"delta": {"tool_calls": [{"function": {"arguments": "{}"}}]}}]},
        ],
        [[("tool_call", "find{}")]],
    ),
    "responses": (
        [{"type": "response.output_text.delta", "delta": "hi"}],
        [[("text", "hi")]],
    ),
    "a whole response": (
        [{"output": [{"content": [{"type": "output_text", "text": "hi"}]}]}],
        [[("text", "hi")]],
    ),
    "anthropic": (
        [
            {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "h"}},
            {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "i"}},
        ],
        [[("text", "hi")]],
    ),
    "a whole message": ([{"content": [{"type": "text", "text": "hi"}]}], [[("text", "hi")]]),
    "ollama": (
        [{"message": {"content": "h"}, "done": False}, {"response": "i", "done": True}],
        [[("text", "hi")]],
    ),
    "nothing": ([{"choices": []}, {"choices": None}, {"usage": {}}], []),
    "nonsense": ([{"choices": [5, None]}, {"delta": 5}, {"output": {}, "content": "x"}], []),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_every_dialect_is_read(kind):
    """The text of each choice, in parts by its kind."""
    documents, expected = ANSWERS[kind]

    found = [[(p["type"], p["content"]) for p in m["parts"]] for m in answered(documents)]

    assert expected == found


REQUESTS = {
    "prompt": ({"prompt": "a"}, [("user", "a")]),
    "prompts": ({"prompt": ["a", "b"]}, [("user", "a"), ("user", "b")]),
    "tokens": ({"prompt": [1, 2]}, []),
    "input": ({"input": "a", "instructions": "b"}, [("system", "b"), ("user", "a")]),
    "anthropic": (
        {"system": "s", "messages": [{"role": "user", "content": "u"}]},
        [("system", "s"), ("user", "u")],
    ),
    "a tool's answer": ({"messages": [{"role": "tool", "content": "t"}]}, [("tool", "t")]),
    "nonsense": ({"messages": [None, 5, {"content": 5}], "system": 7, "input": {}}, []),
}


@pytest.mark.parametrize("kind", REQUESTS)
def test_every_way_to_ask_is_read(kind):
    """Messages, prompts and instructions, whoever invented them."""
    document, expected = REQUESTS[kind]

    assert expected == [(m["role"], m["parts"][0]["content"]) for m in asked(document)]


def test_a_call_that_the_model_made_is_a_part_of_the_conversation():
    """With its name and its arguments."""
    call = {"function": {"name": "find", "arguments": "{}"}}

    (message,) = asked({"messages": [{"role": "assistant", "content": None, "tool_calls": [call]}]})

    assert [{"type": "tool_call", "name": "find", "arguments": "{}"}] == message["parts"]


@pytest.mark.parametrize(
    "functions",
    [
        [{"name": "find", "arguments": '{"k": 1}'}],
        [{"name": "find", "arguments": {"k": 1}}],
        [
            {"name": "find"},
            {"name": None, "arguments": '{"k": '},
            {"name": None, "arguments": "1}"},
        ],
    ],
)
def test_a_call_is_put_together_from_what_servers_send_of_it(functions):
    """Arguments as text, as an object as Ollama's, and in parts whose name is null."""
    deltas = [{"choices": [{"delta": {"tool_calls": [{"function": f}]}}]} for f in functions]

    (message,) = answered(deltas)

    assert [{"type": "tool_call", "content": 'find{"k": 1}'}] == message["parts"]


def said(*texts):
    """A message for each text."""
    return [{"role": "user", "parts": [{"type": "text", "content": text}]} for text in texts]


@given(st.lists(st.text(st.characters(), max_size=300), max_size=6), st.integers(64, 2000))
def test_what_is_cut_is_json_within_the_bound(texts, limit):
    """Any text, also what JSON must escape and what is no Unicode; the newest is kept."""
    text, cut = encode(said(*texts), limit)

    kept = json.loads(text)
    assert len(text.encode()) <= limit
    assert cut or len(kept) == len(texts)
    for message, given_ in zip(reversed(kept), reversed(texts), strict=False):
        clean = given_.encode("utf-8", "replace").decode()
        assert clean.startswith(message["parts"][0]["content"])


@given(
    st.lists(st.text(st.characters(), max_size=100), min_size=1, max_size=4),
    st.integers(64, 300),
)
def test_a_message_of_many_parts_is_cut_in_the_last_that_fits(texts, limit):
    """What is kept is the beginning of it, part by part."""
    parts = [{"type": "text", "content": text} for text in texts]
    text, _ = encode([{"role": "assistant" * 4, "parts": parts}], limit)

    kept = [part["content"] for message in json.loads(text) for part in message["parts"]]
    clean = [one.encode("utf-8", "replace").decode() for one in texts]
    assert len(text.encode()) <= limit
    assert clean[: len(kept[:-1])] == kept[:-1]
    assert all(whole.startswith(cut) for whole, cut in zip(clean, kept, strict=False))


def test_a_document_that_is_no_object_says_nothing():
    """Not every JSON is an answer."""
    said = {s.INPUT_MESSAGES: ASKED}
    steps = (response_start(), response_body(b"[1]"))

    assert said == content_of(*steps, capture_content=True)


def test_the_newest_is_kept_and_the_cut_is_said():
    """A long history does not push out the question."""
    question = {"role": "user", "content": "why?"}
    history = {"role": "user", "content": "x" * 500}
    body = json.dumps({"messages": [history, question]}).encode()

    found = content_of(*chat("a"), body=body, capture_content=True, max_content_bytes=256)

    first, last = found[s.INPUT_MESSAGES]
    assert set(first["parts"][0]["content"]) == {"x"}
    assert "why?" == last["parts"][0]["content"]
    assert found[s.CONTENT_TRUNCATED] is True


def test_an_answer_is_kept_up_to_its_bound():
    """Past it nothing more is copied, and that is said."""
    found = content_of(*chat(*["word "] * 50), capture_content=True, max_body_bytes=1000)

    words = found[s.OUTPUT_MESSAGES][0]["parts"][0]["content"].split()
    assert 0 < len(words) < 50
    assert found[s.CONTENT_TRUNCATED] is True


def test_a_fault_of_ours_never_reaches_the_stream():
    """The message has gone on before it is read."""
    sent = []

    async def send(message):
        sent.append(message)

    copy = ContentCopy(send, read=10, limit=64)
    with faults.production():
        asyncio.run(copy.send({"type": "http.response.body", "body": None}))

    assert [{"type": "http.response.body", "body": None}] == sent
