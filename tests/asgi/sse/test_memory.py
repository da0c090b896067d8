"""What one stream taught is used for the next, and changes nothing but the cost."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sse_streams import ReferenceDetector, chat, said, sse

from llm_trace.asgi.sse import Memory, Seen, TokenDetector

COUNTS = {"prompt_tokens": 3, "total_tokens": 5, "completion_tokens": 2}


def stream(number, *texts, finish="stop"):
    """The events of a whole answer with an id of its own."""
    own = {"id": f"chatcmpl-{number}", "created": 1764460000 + number}
    chunks = [
        chat({"role": "assistant", "content": ""}, **own),
        *(chat({"content": text}, **own) for text in texts),
        chat({}, finish, **own),
        {**chat(**own), "choices": [], "usage": COUNTS},
    ]
    return [sse(chunk) for chunk in chunks] + [b"data: [DONE]\n\n"]


class CountedDetector(TokenDetector):
    """A detector that counts the events which it reads in full."""

    __slots__ = ("parsed",)

    def __init__(self, memory):
        super().__init__("sse", memory)
        self.parsed = 0

    def _parse(self, event):
        self.parsed += 1
        return super()._parse(event)


def parsed(memory, events):
    """How many of `events` are read in full."""
    detector = CountedDetector(memory)
    for event in events:
        detector.feed(event)
    return detector.parsed


def test_second_stream_of_a_server_is_not_decoded():
    """Role, first token and finish are known by their bytes; counts are read apart."""
    memory = Memory()

    assert [parsed(memory, stream(n, " a", " b")) for n in range(3)] == [3, 0, 0]


def test_stream_that_stamps_every_chunk_is_not_decoded():
    """An opening with other digits is still the opening, so the shape is learned from it."""
    memory = Memory()
    parsed(memory, stream(0, " a"))
    stamped = [sse(chat({"content": " a"}, created=second)) for second in range(10, 30)]

    assert parsed(memory, stamped) == 0


def test_facts_are_those_of_the_stream_itself():
    """Id and counts are read from each stream, the finish reason by its bytes."""
    memory = Memory()
    parsed(memory, stream(1, " a"))
    detector = TokenDetector("sse", memory)
    bits = [detector.feed(event) for event in stream(2, " b", " c")]

    token = Seen.TOKEN | Seen.ANSWER
    assert bits == [Seen.ROLE, token, token, Seen.FINISH, Seen.USAGE, Seen.END]
    assert said(detector.facts) == {
        "response_id": "chatcmpl-2",
        "response_model": "tiny",
        "finish_reasons": ["stop"],
        "usage": {"input_tokens": 3, "output_tokens": 2},
        "token_events": 2,
    }


@pytest.mark.parametrize(
    "event",
    [
        sse(chat({"role": "assistant"}, x={"id": "chatcmpl-1"})),
        sse(chat({"tool_calls": [{"index": 0, "id": "call_1"}]})),
        sse(chat({"role": "assistant"}, error={"type": "overloaded"})),
        sse({**chat(), "choices": [], "usage": COUNTS, "x": 1}),
        sse({"choices": [], **chat()}),
        sse(chat({"role": "assistant"}, id='a"b')),
        sse(chat({"role": "assistant"}, x="y" * 1024)),
        sse(chat({}, "stop", metrics={"time_to_first_token_ms": 12.5})),
    ],
    ids=["id", "call id", "error", "more than counts", "order", "escaped id", "long", "metrics"],
)
def test_what_is_not_plain_is_read_in_full_each_time(event):
    """An event that could say something of its own stream is decoded, however often it comes."""
    memory = Memory()

    assert [parsed(memory, [event]) for _ in range(3)] == [1, 1, 1]


@pytest.mark.parametrize("text", ['"', "\\", "\n", '","finish_reason":"stop', ""])
def test_content_that_is_not_plain_is_read_in_full(text):
    """Neither a quote nor an escape in a first token is taken for its end."""
    memory = Memory()
    parsed(memory, [sse(chat({"content": " a"}))])

    assert parsed(memory, [sse(chat({"content": text}))]) == 1


def test_memory_holds_no_content_and_stays_small():
    """Nothing of an answer is kept, and ten thousand kinds of events are not remembered."""
    memory = Memory()
    for number in range(10_000):
        detector = TokenDetector("sse", memory)
        detector.feed(sse(chat({"content": "canary"}, x=number)))
        detector.feed(sse(chat({}, f"reason {number}")))

    kept = b"".join([*memory._said, *(part for form in memory._forms for part in form[:2])])
    assert b"canary" not in kept
    assert len(kept) < 80 * 1024


def test_memory_that_was_filled_with_noise_learns_again():
    """What a server says in every stream comes back, whatever came in between."""
    memory = Memory()
    for number in range(200):
        parsed(memory, [sse(chat({}, f"reason {number}"))])
    parsed(memory, stream(1, " a"))

    assert parsed(memory, stream(2, " a")) == 0


TEXTS = st.one_of(st.text(max_size=4), st.sampled_from([" a", "", '"', "\\", "\x00", "é", "\n"]))
DELTAS = st.one_of(
    st.builds(lambda text: {"content": text}, TEXTS),
    st.builds(lambda text: {"role": "assistant", "content": text}, TEXTS),
    st.builds(lambda text: {"reasoning": text}, TEXTS),
    st.just({}),
)
TIMES = {"metrics": {"queue_time_ms": 1.5}}
EXTRAS = st.sampled_from(
    [{}, {}, {}, {"usage": None}, {"usage": COUNTS}, {"error": {"code": 1}}, {"id": "again"}, TIMES]
)
CHUNKS = st.builds(
    lambda own, delta, finish, extra, choices: {
        **chat(delta, finish, **own),
        **extra,
        **({} if choices else {"choices": []}),
    },
    st.sampled_from([{"id": "a"}, {"id": "b", "created": 7}, {"model": "m/1", "object": "x"}]),
    DELTAS,
    st.sampled_from([None, None, "stop", "length"]),
    EXTRAS,
    st.booleans(),
)
SPELLED = st.one_of(
    CHUNKS.map(sse),
    CHUNKS.map(lambda chunk: b"data: " + json.dumps(chunk).encode() + b"\n\n"),
)


@given(st.lists(st.lists(SPELLED, max_size=5), max_size=5))
def test_memory_changes_nothing_but_the_cost(streams):
    """Streams that share a memory say what each says when it is read in full, body by body."""
    memory = Memory()
    for events in streams:
        remembering, reading = TokenDetector("sse", memory), ReferenceDetector("sse")

        assert [remembering.feed(e) for e in events] == [reading.feed(e) for e in events]
        assert said(remembering.facts) == said(reading.facts)
