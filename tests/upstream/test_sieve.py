"""The ledger's lines are taken out wherever the stream is cut, and nothing else is touched."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_trace.core.inband import MARK, MAX_LINE, comment
from llm_trace.upstream.sieve import Sieve

LINE = comment("first_token", {"prefill": 5_000})
EVENT = b'data: {"choices": [{"delta": {"content": "a: llm_trace b"}}]}\n\n'


def sift(*chunks):
    """What is passed for each chunk, what comes at the end, and what was found."""
    sieve = Sieve()
    passed = [sieve.feed(chunk) for chunk in chunks]
    return passed, sieve.close(), sieve.found


def test_a_line_beside_its_event_is_taken_out():
    """The event passes at once and byte for byte."""
    assert sift(LINE + EVENT, EVENT) == ([EVENT, EVENT], b"", [LINE[:-1]])


def test_a_chunk_without_a_ledger_is_the_very_same_object():
    """The usual chunk is not even copied."""
    plain = EVENT.replace(MARK.strip(), b"")

    assert Sieve().feed(plain) is plain


def test_another_comment_passes():
    """A ping that begins alike is held no longer than it could be ours."""
    assert sift(b": l", b"ong ping\n\n") == ([b"", b": long ping\n\n"], b"", [])


def test_the_mark_inside_a_line_is_content():
    """Only the beginning of a line counts, also where a chunk begins inside one."""
    assert sift(b"data: x", LINE) == ([b"data: x", LINE], b"", [])


def test_what_was_held_comes_at_the_end():
    """A stream that ends in the beginning of a ledger loses no byte."""
    assert sift(EVENT + MARK) == ([EVENT], MARK, [])


def test_a_line_without_end_is_not_held_for_ever():
    """What is longer than any ledger passes."""
    endless = MARK + b"x" * MAX_LINE

    assert sift(endless, b"y\n") == ([endless, b"y\n"], b"", [])


pieces = st.sampled_from(
    [LINE, EVENT, MARK, b": ping\n\n", b"\n", b"data: [DONE]\n\n", b": ", b"\r\n", b"x", LINE[:-1]]
)


def clean(stream):
    """The plain meaning: every whole line of the ledger's is gone."""
    lines = stream.split(b"\n")
    whole = [line + b"\n" for line in lines[:-1] if not line.startswith(MARK)]
    return b"".join(whole) + lines[-1]


@given(st.lists(pieces, max_size=8), st.lists(st.integers(0, 400), max_size=6))
def test_any_cut_gives_the_same_bytes(parts, cuts):
    """Whole, byte by byte or at random: what the app reads does not depend on the network."""
    stream = b"".join(parts)
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    chunks = [stream[a:b] for a, b in pairwise(edges)]
    bytewise = [stream[n : n + 1] for n in range(len(stream))]

    for way in (chunks, bytewise):
        passed, rest, _ = sift(*way)
        assert b"".join(passed) + rest == clean(stream)


@pytest.mark.parametrize("end", range(len(EVENT)))
def test_a_token_is_never_held(end):
    """However an event is cut, all of it passes at once."""
    assert sift(EVENT[:end], EVENT[end:])[0] == [EVENT[:end], EVENT[end:]]
