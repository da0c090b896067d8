"""A detector finds the tokens of a stream, however it is cut, and reads JSON only if it must."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sse_streams import (
    ReferenceDetector,
    chat,
    cut_at,
    every_cut,
    observed,
    said,
    same_at_every_cut,
    same_at_every_line_end,
    sse,
    typed,
)

from llm_trace.asgi.sse import Seen, TokenDetector
from llm_trace.asgi.sse.framing import EVENT_LIMIT

ANSWER = Seen.TOKEN | Seen.ANSWER
REASONING = Seen.TOKEN | Seen.REASONING
CALL = Seen.TOKEN | Seen.ANSWER | Seen.TOOL_CALL
CHAT = {"response_id": "chatcmpl-1", "response_model": "tiny"}

ROLE_CHUNK = sse(chat({"role": "assistant", "content": ""}))
USUAL = sse(chat({"content": " hello"}))
PADDED = sse(chat({"content": "Hi"}, obfuscation="abc"))


class CountedDetector(TokenDetector):
    """A detector that counts the events which it reads in full."""

    __slots__ = ("parsed",)

    def __init__(self, framing="sse"):
        super().__init__(framing)
        self.parsed = 0

    def _parse(self, event):
        self.parsed += 1
        return super()._parse(event)


def fed(*bodies, framing="sse"):
    """Return what each body gave, and how many events were read in full for it."""
    detector = CountedDetector(framing)
    steps = []
    for body in bodies:
        before = detector.parsed
        steps.append((detector.feed(body), detector.parsed - before))
    return steps


def numbered(text, number, obfuscation=None):
    """Return a Responses delta as OpenAI sends it."""
    more = {} if obfuscation is None else {"obfuscation": obfuscation}
    kind = "response.output_text.delta"
    return typed({"type": kind, "sequence_number": number, "item": "m", "delta": text, **more})


def test_an_unknown_framing_is_refused():
    """The error names what is accepted."""
    with pytest.raises(ValueError, match="one of 'sse', 'ndjson', 'text', not 'xml'"):
        TokenDetector("xml")


def test_plain_text_is_a_token_a_body():
    """In a plain text stream every body that is not empty is a token, blanks included."""
    assert observed([b"", b"Hi", b" "], "text") == {"bits": ANSWER, "token_events": 2}
    assert observed([b""], "text") == {"bits": 0}


def test_bits_belong_to_the_body_that_completes_an_event():
    """Each body gives what it completes; the rest comes with a later one or with the end."""
    detector = TokenDetector("sse")
    bodies = [ROLE_CHUNK, USUAL[:50], USUAL[50:] + USUAL[:9], USUAL[9:-1], b"\n", USUAL[:-2]]

    assert [detector.feed(body) for body in bodies] == [Seen.ROLE, 0, ANSWER, 0, ANSWER, 0]
    assert [detector.close(), detector.close()] == [ANSWER, 0]
    assert detector.facts.token_events == 3


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_other_kinds_of_bytes(kind):
    """Servers may send bytearray or memoryview, and it is read all the same."""
    assert observed([kind(ROLE_CHUNK), kind(USUAL), kind(USUAL)]) == {
        **CHAT,
        "bits": Seen.ROLE | ANSWER,
        "token_events": 2,
    }


# Entries of the field reports, by their numbers.


def test_49_a_role_only_or_empty_first_chunk_is_no_token():
    """The first token is the first chunk with content."""
    empty = sse(chat({"content": ""}))

    assert fed(ROLE_CHUNK, empty, USUAL) == [(Seen.ROLE, 1), (Seen.ROLE, 1), (ANSWER, 1)]


@pytest.mark.parametrize("choices", [{"choices": []}, {"choices": None}, {}])
def test_50_a_usage_chunk_needs_no_choices(choices):
    """Usage is taken once, and the last non-null one wins."""
    chunks = [{"usage": {"prompt_tokens": 1}}, {"usage": {"prompt_tokens": 2}}, {"usage": None}]
    head = {"object": "chat.completion.chunk", "id": "chatcmpl-1", "model": "tiny"}
    stream = sse(*({**head, **choices, **chunk} for chunk in chunks))

    assert same_at_every_cut(stream) == {
        **CHAT,
        "bits": Seen.USAGE | Seen.ROLE,
        "usage": {"input_tokens": 2},
    }


def test_51_events_cut_or_joined_give_the_same_tokens():
    """Five tokens are five, in one message, in five, cut anywhere, without a last blank line."""
    stream = ROLE_CHUNK + USUAL * 5
    expected = {**CHAT, "bits": Seen.ROLE | ANSWER, "token_events": 5}

    assert same_at_every_line_end(stream) == expected
    assert same_at_every_line_end(stream.rstrip()) == expected
    assert observed([ROLE_CHUNK, *[USUAL] * 5]) == expected


def test_52_characters_may_be_cut_or_invalid():
    """Neither a cut character, nor invalid bytes, nor an end within one loses a token."""
    stream = sse(*(chat({"content": text}) for text in ("你好", "🙂", "é"))) + USUAL.replace(
        b"hello", b"\xff\xc3"
    )
    expected = {**CHAT, "bits": ANSWER, "token_events": 4}

    assert same_at_every_line_end(stream) == expected
    assert observed([stream, "data: 你".encode()[:-1]]) == {**expected, "malformed": 1}


@pytest.mark.parametrize(
    "ping",
    [
        ": ping\n\n",
        ":\n\n",
        ": keep-alive\n",
        "event: ping\ndata: {}\n\n",
        "event: ping\ndata: hello\n\n",
        "event: keepalive\n\n",
        'data: {"type":"ping"}\n\n',
    ],
)
def test_53_comments_and_pings_are_no_tokens(ping):
    """Keep-alives give one bit and neither tokens nor malformed events."""
    stream = ping.encode() * 3 + USUAL + ping.encode() + USUAL

    assert same_at_every_line_end(stream) == {
        **CHAT,
        "bits": Seen.COMMENT | ANSWER,
        "token_events": 2,
    }


def test_53_an_empty_chunk_as_heartbeat_is_no_token():
    """A chunk without delta, without choices or without data is at most an empty one."""
    assert observed([sse(chat(None), chat({}), chat(choices=[]), "")]) == {
        **CHAT,
        "bits": Seen.ROLE,
    }


@pytest.mark.parametrize(
    "event",
    [
        "data:{}\n\n",
        "event: message\nid: 7\nretry: 100\ndata: {}\n\n",
        "\ufeffdata: {}\n\n",
        "data: {}\nid: 8\n\n",
        "unknown: x\ndata\ndata: {}\ndata:\n\n",
    ],
)
def test_54_other_spellings_of_an_event(event):
    """Blanks, fields and a byte order mark change nothing."""
    payload = USUAL.decode().removeprefix("data: ").rstrip()
    stream = event.replace("{}", payload).encode()

    assert same_at_every_line_end(stream + b"data:[DONE]") == {
        **CHAT,
        "bits": ANSWER | Seen.END,
        "token_events": 1,
    }


def test_54_data_lines_are_joined():
    """JSON may be spread over data lines."""
    stream = USUAL.replace(b',"choices"', b',\ndata: "choices"')

    assert same_at_every_line_end(stream * 2) == {**CHAT, "bits": ANSWER, "token_events": 2}


def test_55_several_tokens_in_a_chunk_are_one_event():
    """Events are counted, not what they hold: the tokens are known from usage only."""
    chunks = [chat({"content": " a b c"}) for _ in range(4)]
    stream = sse(*chunks, chat(choices=[], usage={"completion_tokens": 12}))

    assert same_at_every_cut(stream) == {
        **CHAT,
        "bits": ANSWER | Seen.USAGE,
        "token_events": 4,
        "usage": {"output_tokens": 12},
    }


def test_56_no_output_token_at_all():
    """A stream that stops at once has no token; a count of zero is a count."""
    stream = ROLE_CHUNK + sse(chat({}, "stop", usage={"completion_tokens": 0}), "[DONE]")

    assert same_at_every_cut(stream) == {
        **CHAT,
        "bits": Seen.ROLE | Seen.FINISH | Seen.USAGE | Seen.END,
        "finish_reasons": ["stop"],
        "usage": {"output_tokens": 0},
    }


def test_57_an_answer_in_one_piece_has_no_token():
    """A whole JSON answer has no framing, and read as a line it has no token either."""
    answer = {"object": "chat.completion", "choices": [{"message": {"content": "Hi"}}]}
    body = json.dumps(answer).encode()

    assert observed([body], "ndjson") == {"bits": Seen.ROLE}
    assert observed([b'{"error":{"code":400}}'], "ndjson") == {
        "bits": Seen.ERROR,
        "error_status": 400,
        "error_type": "400",
    }


# Shapes: which events are read in full, and which are not.


def test_usual_events_are_read_in_full_once():
    """After the first, an event of the same shape costs no JSON, one or many in a body."""
    assert fed(ROLE_CHUNK, USUAL, USUAL, USUAL * 3) == [
        (Seen.ROLE, 1),
        (ANSWER, 1),
        (ANSWER, 0),
        (ANSWER, 0),
    ]


@pytest.mark.parametrize(
    ("unusual", "bits"),
    [
        (chat({"content": ""}), Seen.ROLE),
        (chat({"content": " hello"}, "stop"), ANSWER | Seen.FINISH),
        (chat({"content": " hello"}, usage={"prompt_tokens": 1}), ANSWER | Seen.USAGE),
        (chat({"content": " hello"}, error={"code": 1}), ANSWER | Seen.ERROR),
        ({"error": {"code": 503}}, Seen.ERROR),
        (chat({"reasoning": " hello"}), REASONING),
        (chat({"content": None}), Seen.ROLE),
        (chat({"content": ["x"]}), Seen.ROLE),
    ],
)
def test_unusual_events_are_read_in_full(unusual, bits):
    """Whatever has more or less than content is never taken for a usual token."""
    assert fed(USUAL, sse(unusual)) == [(ANSWER, 1), (bits, 1)]
    assert fed(USUAL, USUAL + sse(unusual)) == [(ANSWER, 1), (bits | ANSWER, 1)]


def test_a_terminator_in_its_own_message_is_known_by_sight():
    """It ends nearly every stream, so it is compared and not read; in a batch it is read."""
    assert fed(USUAL, sse("[DONE]")) == [(ANSWER, 1), (Seen.END, 0)]
    assert fed(USUAL, USUAL + sse("[DONE]")) == [(ANSWER, 1), (ANSWER | Seen.END, 1)]


@pytest.mark.parametrize("text", ["42", " ", 'say \\"hi\\"', "\\n", "\\\\", "\\u00e9", "你", "{}"])
def test_usual_events_with_any_content(text):
    """Digits, blanks, escapes and quotes in the content leave the shape as it is."""
    assert fed(USUAL, USUAL.replace(b" hello", text.encode())) == [(ANSWER, 1), (ANSWER, 0)]


@pytest.mark.parametrize("text", ['a","x":"b', '\\\\"', '","finish_reason":"stop', '\\"' * 999])
def test_content_that_leaves_its_string_is_not_usual(text):
    """A bare quote, or more than is worth looking at, sends the event to the full reading."""
    assert fed(USUAL, USUAL.replace(b" hello", text.encode()))[1][1] == 1


@pytest.mark.parametrize(
    ("event", "bits"),
    [
        (lambda n: numbered("Hi", n), ANSWER),
        (lambda n: numbered("Hi", n, "x" * (n % 7)), ANSWER),
        (lambda n: sse(chat({"content": "Hi"}, created=n)), ANSWER),
        (lambda n: sse(chat({"content": "Hi"}, obfuscation="a1" * (n % 3))), ANSWER),
        (lambda n: sse(chat({"content": str(n)}, obfuscation="a1" * (n % 3))), ANSWER),
        (lambda n: USUAL.replace(b"}]}", b"}" + b" " * n + b"]}"), ANSWER),
        (lambda n: b'{"at":"10:%d","response":"Hi","done":false}\n' % n, ANSWER),
    ],
)
def test_numbers_blanks_and_padding_may_vary(event, bits):
    """Events that are numbered, stamped or padded are usual, too."""
    framing = "sse" if b"data" in event(7) else "ndjson"
    bodies = [event(n) for n in (7, 8, 9, 10, 100)]

    assert fed(*bodies, framing=framing) == [(bits, 1), *[(bits, 0)] * 4]


@pytest.mark.parametrize("broken", [b"", b'"', b'"x\n\n', b'""}\n\n'])
def test_padding_must_be_the_last_string(broken):
    """A padded event that ends otherwise, or not at all, is not usual."""
    assert observed([PADDED, PADDED[:-4] + broken]) == {
        **CHAT,
        "bits": ANSWER,
        "token_events": 1,
        "malformed": 1,
    }


def test_a_second_string_after_padding_is_not_padding():
    """Only a last string under the key is padding; elsewhere it must stay the same."""
    events = [sse(chat({"content": "Hi"}, obfuscation=pad, x="y")) for pad in ("a", "a", "b")]

    assert fed(*events) == [(ANSWER, 1), (ANSWER, 0), (ANSWER, 1)]


def test_a_stamp_that_changes_now_and_then_is_learned_afresh():
    """The exact shape is renewed where it serves well, and left alone where it never does."""
    old, new = (sse(chat({"content": "Hi"}, created=stamp)) for stamp in (1, 2))

    assert [parsed for _, parsed in fed(*[old] * 9, new, new, old)] == [1, *[0] * 8, 1, 0, 0]


def counting(tokens, **more):
    """Return a chunk of a server that counts along."""
    return sse(chat({"content": "Hi"}, usage={"completion_tokens": tokens}, **more))


def test_counts_in_every_chunk_are_read_once():
    """Only the last ones count, so those of the others are passed over."""
    detector = CountedDetector()
    bits = {detector.feed(counting(tokens)) for tokens in range(200)}
    read = detector.parsed
    detector.close()

    assert (bits, read) == ({ANSWER | Seen.USAGE}, 1)
    assert said(detector.facts) == {**CHAT, "token_events": 200, "usage": {"output_tokens": 199}}


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (sse(chat(choices=[], usage={"prompt_tokens": 7})), {"input_tokens": 7}),
        (sse(chat({"content": "Hi"}, usage={"prompt_tokens": 7})), {"input_tokens": 7}),
        (counting(5, x="y"), {"output_tokens": 5}),
        (counting(5) + USUAL + counting(6), {"output_tokens": 6}),
        (counting(5, padding="x" * 9_999), {"output_tokens": 5}),
        (counting(5).replace(b"Hi", b"x" * 9_999), {"output_tokens": 5}),
    ],
    ids=["apart", "other counts", "another shape", "some without", "long shape", "long"],
)
def test_of_counts_the_last_of_each_kind_wins(last, expected):
    """In whatever events they come; those that were passed over are not forgotten."""
    counts = {"output_tokens": 3, **expected}

    found = observed([counting(1), counting(2), counting(3), last])

    assert found["usage"] == counts
    assert found == observed([counting(1), counting(3), last], detector=ReferenceDetector) | {
        "token_events": found["token_events"]
    }


def test_reasoning_that_turns_into_an_answer_is_learned_afresh():
    """Each kind keeps its bits, and costs one full reading."""
    think, answer = sse(chat({"reasoning": "hm"})), USUAL

    assert fed(think, think, answer, answer, think) == [
        (REASONING, 1),
        (REASONING, 0),
        (ANSWER, 1),
        (ANSWER, 0),
        (REASONING, 1),
    ]


def test_tool_call_arguments_are_usual_too():
    """Arguments full of escaped quotes need no JSON either."""

    def call(arguments):
        return sse(chat({"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]}))

    assert fed(call("{"), call('"city":"'), call("}")) == [(CALL, 1), (CALL, 0), (CALL, 0)]


@pytest.mark.parametrize(
    "event",
    [
        sse(chat({"content": 'a"b'})),  # spelled with escapes
        USUAL.replace(b" hello", b"\xff"),  # not UTF-8
        USUAL.replace(b'"index"', b'"content":" hello","index"'),  # two such keys
        USUAL.replace(b'"content":', b'"content" :'),  # an unknown spelling of the key
        sse(chat({"content": "a"}, padding="x" * 999)),  # too long to be kept
        b": comment\n".join([b"id: 1\n", USUAL]),  # not only a token
    ],
)
def test_events_of_which_no_shape_is_learned(event):
    """A shape is learned only where the bytes leave no doubt; else all is read in full."""
    assert [parsed for _, parsed in fed(event, event)] == [1, 1]


def test_json_with_blanks_is_learned_too():
    """Encoders that put a blank after the colon are as welcome."""
    event = b"data: " + json.dumps(chat({"content": "Hi"})).encode() + b"\n\n"

    assert fed(event, event) == [(ANSWER, 1), (ANSWER, 0)]


# Oversized events.

BIG = "x" * EVENT_LIMIT
OVERSIZED = {
    "comment": (f": {BIG}\n\n".encode(), Seen.COMMENT),
    "chat": (sse(chat({"content": BIG})), ANSWER),
    "chat, reasoning": (sse(chat({"reasoning_content": BIG})), REASONING),
    "chat, audio": (sse(chat({"audio": {"id": "a", "data": BIG}})), ANSWER),
    "chat, call": (sse(chat({"tool_calls": [{"function": {"arguments": BIG}}]})), CALL),
    "chat, token ids": (sse(chat({"content": ""}, prompt_token_ids=[1] * EVENT_LIMIT)), Seen.ROLE),
    "chat, finish": (sse(chat({"content": ""}, "stop", x=BIG)), Seen.FINISH),
    "completion": (sse({"choices": [{"text": BIG}]}), ANSWER),
    "audio delta": (sse({"type": "response.audio.delta", "delta": BIG}), ANSWER),
    "type last": (
        sse({"delta": BIG, "type": "x"}, event="response.reasoning_text.delta"),
        REASONING,
    ),
    "completed": (
        sse({"type": "response.completed", "response": {"output": BIG}}),
        Seen.FINISH | Seen.END,
    ),
    "created": (typed({"type": "response.created", "response": {"instructions": BIG}}), Seen.ROLE),
    "block": (
        typed(
            {
                "type": "content_block_delta",
                "delta": {"type": "input_json_delta", "partial_json": BIG},
            }
        ),
        CALL,
    ),
    "block of unknown type": (typed({"type": "content_block_delta", "x": BIG}), 0),
    "error": (sse({"error": {"message": BIG}}), Seen.ERROR),
    "unknown": (sse({"x": BIG}), 0),
}


@pytest.mark.parametrize(("event", "bits"), OVERSIZED.values(), ids=OVERSIZED)
def test_oversized_events_are_told_by_their_heads(event, bits):
    """An event too long to be held is still a token, an end or an error, at any cut."""
    expected = {"bits": bits | ANSWER, "token_events": 1 + bool(bits & Seen.TOKEN), **CHAT}
    if bits & Seen.ERROR:
        expected["error_type"] = "error"
    if not bits:
        expected["malformed"] = 1
    stream = event + USUAL

    assert observed([stream]) == expected
    for place in (1, 100, 5_000, EVENT_LIMIT, len(event) - 2, len(event) - 1, len(event)):
        assert observed(cut_at(stream, place)) == expected
    assert observed([stream[i : i + 61] for i in range(0, len(stream), 61)]) == expected


def test_an_oversized_error_does_not_rename_an_earlier_one():
    """The first error names the stream's."""
    stream = sse({"error": {"code": 503}}, {"error": {"message": BIG}})

    said = {"bits": Seen.ERROR, "error_status": 503, "error_type": "503"}
    assert observed([stream]) == said


# Properties.

TEXTS = st.one_of(
    st.text(max_size=6), st.sampled_from(["", "42", " ", '"', "\\", "\n", "🙂", 'a":"b', "1 2"])
)
DELTAS = st.one_of(
    st.builds(lambda text: {"content": text}, TEXTS),
    st.builds(lambda text: {"role": "assistant", "content": text}, TEXTS),
    st.builds(lambda text: {"reasoning": text}, TEXTS),
    st.builds(lambda text: {"tool_calls": [{"function": {"arguments": text}}]}, TEXTS),
    st.just({}),
)
CHOICES = st.builds(
    lambda index, delta, finish: {"index": index, "delta": delta, "finish_reason": finish},
    st.sampled_from([0, 0, 1, 12]),
    DELTAS,
    st.sampled_from([None, None, None, None, "stop"]),
)
EXTRAS = st.sampled_from(
    [
        *[{}] * 5,
        {"usage": None},
        *({"usage": {"prompt_tokens": 5, "completion_tokens": tokens}} for tokens in (0, 1, 22)),
        {"usage": {"completion_tokens": 3}},
        {"usage": {"completion_tokens": 4}, "obfuscation": "a1"},
        {"error": {"code": 503}},
        {"obfuscation": "a1"},
        {"obfuscation": "xyz"},
        {"obfuscation": ""},
    ]
)
CHUNKS = st.builds(
    lambda created, choices, extra: {
        "id": "c",
        "created": created,
        "choices": choices,
        **extra,
    },
    st.sampled_from([1, 1, 1, 2, 33]),
    st.lists(CHOICES, min_size=1, max_size=2),
    EXTRAS,
)
DELTA_EVENTS = st.builds(
    lambda kind, number, text: {
        "type": kind,
        "sequence_number": number,
        "delta": text,
        "obfuscation": text[:2],
    },
    st.sampled_from(["response.output_text.delta", "response.reasoning_text.delta"]),
    st.integers(0, 1000),
    TEXTS,
)
EVENTS = st.one_of(
    CHUNKS.map(sse),
    CHUNKS.map(sse),
    DELTA_EVENTS.map(typed),
    CHUNKS.map(lambda chunk: b"data: " + json.dumps(chunk).encode() + b"\n\n"),
    st.sampled_from([b": ping\n\n", b"data: [DONE]\n\n", b"data: {\n\n"]),
)


@given(st.lists(EVENTS, max_size=12))
def test_shapes_change_nothing_but_the_cost(events):
    """A detector that learns says what one that reads all in full says, body by body."""
    learning, reading = TokenDetector("sse"), ReferenceDetector("sse")

    assert [learning.feed(e) for e in events] == [reading.feed(e) for e in events]
    assert [learning.close(), said(learning.facts)] == [reading.close(), said(reading.facts)]


@given(st.lists(EVENTS, max_size=8), st.sampled_from([b"\n", b"\r\n", b"\r"]), st.data())
def test_any_cut_of_any_stream_says_the_same(events, end, data):
    """Neither the cuts nor the line ends of a stream change what is said of it."""
    stream = b"".join(events)
    expected = observed([stream], detector=ReferenceDetector)
    stream = stream.replace(b"\n", end)
    places = data.draw(st.lists(st.integers(0, len(stream)), max_size=12))

    assert observed(cut_at(stream, *places)) == expected
    assert observed([stream[i : i + 1] for i in range(len(stream))]) == expected


PIECES = st.sampled_from(
    [
        b"data: ",
        b"\n\n",
        b"\r",
        b'"',
        b'{"choices":[',
        b"event: error",
        USUAL,
        USUAL[:60],
        b"\x1f\x8b",
    ]
)


@given(
    st.lists(st.one_of(st.binary(max_size=20), PIECES), max_size=20),
    st.sampled_from(["sse", "ndjson", "text"]),
)
def test_no_bytes_raise(bodies, framing):
    """Compressed, binary or broken streams are read without an exception and within bounds."""
    detector = TokenDetector(framing)
    for body in bodies:
        detector.feed(body)
        assert len(detector.held) <= EVENT_LIMIT
    detector.close()

    assert not detector.held


def test_a_long_stream_byte_by_byte_is_read_in_full_once():
    """A stream of many usual events in single bytes decodes one of them, and holds at most one."""
    detector = CountedDetector()
    for place in range(len(USUAL) * 300):
        start = place % len(USUAL)
        detector.feed(USUAL[start : start + 1])
        assert len(detector.held) < len(USUAL)

    assert (detector.parsed, detector.facts.token_events) == (1, 300)


@pytest.mark.parametrize("event", [USUAL, PADDED])
def test_every_cut_of_a_usual_event_is_still_usual(event):
    """An event that comes in pieces, or with others, fits its shape, too."""
    for bodies in [*every_cut(event), [event * 3]]:
        steps = fed(event, *bodies)

        assert [parsed for _, parsed in steps] == [1] + [0] * len(bodies)
        assert [bits for bits, _ in steps if bits] == [ANSWER, ANSWER]


def test_an_event_that_continues_another_is_not_usual():
    """A body that looks usual is none while an event is open before it."""
    assert observed([USUAL, b"data: {\n", USUAL]) == {
        **CHAT,
        "bits": ANSWER,
        "token_events": 1,
        "malformed": 1,
    }


def test_a_string_of_digits_beside_an_empty_one_is_read_in_full():
    """A second string that turns from empty to digits is a token of its own kind."""
    shape = (
        b'data: {"choices":[{"index":0,"delta":{"content":"%s"}},'
        b'{"index":1,"delta":{"reasoning":"%s"}}]}\n\n'
    )

    assert observed([shape % (b"a", b""), shape % (b"b", b"0")]) == observed(
        [shape % (b"a", b""), shape % (b"b", b"0")], detector=ReferenceDetector
    )
