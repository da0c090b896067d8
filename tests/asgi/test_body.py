"""The bounded copy of a body, and what a generation request says in it: never content."""

import json

import pytest
from inline_snapshot import snapshot

from llm_trace.asgi.body import MAX_STOPS, MAX_TEXT, BodyCopy, model_of, request_facts


@pytest.mark.parametrize(
    "parts",
    [
        [b'{"a": 1}'],
        [b'{"a"', b"", b": 1}"],
        [bytearray(b'{"a"'), memoryview(b": 1}")],
        [b"{", b'"a": 1}   '],
    ],
)
def test_a_copy_is_the_same_however_it_was_cut(parts):
    """Parts of any kind of buffer make one document."""
    copy = BodyCopy(11)

    for part in parts:
        copy.feed(part)

    assert copy.document() == {"a": 1}


def test_a_buffer_may_be_used_again():
    """A server that overwrites its buffer does not change the copy."""
    copy, buffer = BodyCopy(100), bytearray(b'{"a": 1}')

    copy.feed(buffer)
    buffer[:] = b"garbage!"

    assert copy.document() == {"a": 1}


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [b""],
        [b"no"],
        [b"5"],
        [b"[]"],
        [b"\xff"],
        [b'{"a": 1'],
        [b"[" * 50],
        [b'{"a": ' + b"9" * 5000 + b"}"],
        [b'{"a": ', b" " * 9000, b"1}"],
        [b"x" * 9000, b"{}"],
    ],
)
def test_what_is_no_document_is_none(parts):
    """Empty, not JSON, no object, too large at any part: None, and nothing raises."""
    copy = BodyCopy(6000)

    for part in parts:
        copy.feed(part)

    assert copy.document() is None


def test_too_deep_a_document_is_none():
    """Nesting beyond what the parser takes is no fault."""
    copy = BodyCopy(10**6)
    copy.feed(b"[" * 200_000)

    assert copy.document() is None


def test_nothing_is_copied_without_room():
    """With a limit of 0 only an empty body fits."""
    copy = BodyCopy(0)
    copy.feed(b"{}")

    assert copy.document() is None


def test_a_request_says_what_was_asked_for():
    """Every parameter that has an attribute, and no message."""
    document = {
        "model": "m",
        "messages": [{"role": "user", "content": "secret"}],
        "max_tokens": 5,
        "max_completion_tokens": 7.0,
        "temperature": 0,
        "top_p": 0.5,
        "top_k": 40,
        "seed": -1,
        "stop": ["a", "b"],
        "n": 2,
        "stream": True,
    }

    assert snapshot(
        {
            "gen_ai.request.max_tokens": 7,
            "gen_ai.request.temperature": 0,
            "gen_ai.request.top_p": 0.5,
            "gen_ai.request.top_k": 40,
            "gen_ai.request.seed": -1,
            "gen_ai.request.stop_sequences": ("a", "b"),
            "gen_ai.request.choice.count": 2,
            "gen_ai.request.stream": True,
        }
    ) == request_facts(document)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"n": 1, "stream": False, "stop": []},
        {"temperature": True, "top_p": "1", "top_k": None, "seed": 1.5, "n": "2"},
        {"temperature": float("nan"), "top_p": float("inf"), "seed": 2**60, "max_tokens": [1]},
        {"stop": 5, "stream": "yes"},
        {"stop": [1, 2]},
        {"stop": {"a": 1}},
    ],
)
def test_defaults_and_nonsense_are_absent(document):
    """A parameter of the wrong type, out of range, or at its default makes no attribute."""
    assert request_facts(document) == {}


def test_stop_sequences_are_bounded():
    """One text or many, in number and length."""
    one = request_facts({"stop": "x" * 1000})
    many = request_facts({"stop_sequences": ["a"] * 100})

    assert {"gen_ai.request.stop_sequences": ("x" * MAX_TEXT,)} == one
    assert {"gen_ai.request.stop_sequences": ("a",) * MAX_STOPS} == many


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ('"m"', "m"),
        ('""', None),
        ("5", None),
        ("null", None),
        (json.dumps("x" * 1000), "x" * MAX_TEXT),
        (r'"a\ud800b"', "a?b"),
        ('"模型"', "模型"),
    ],
)
def test_a_model_is_text_that_can_be_exported(model, expected):
    """Bounded, and without the lone surrogates that JSON can spell."""
    assert expected == model_of(json.loads(f'{{"model": {model}}}'))


def test_a_stop_sequence_can_be_exported():
    """Lone surrogates are replaced there, too."""
    assert request_facts(json.loads(r'{"stop": "\udfff"}')) == {
        "gen_ai.request.stop_sequences": ("?",)
    }
