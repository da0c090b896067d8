"""Events are found whatever the line ends and the cuts, in linear time and bounded memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sse_streams import cut_at, every_cut

from llm_trace.asgi.sse.framing import (
    EVENT_LIMIT,
    HEAD_LIMIT,
    Fields,
    Framer,
    Oversized,
    fields_of,
    framing_of,
    line_of,
)


def events_of(bodies, framing="sse"):
    """Return the events of a stream without the line ends around them, and the oversized ones."""
    framer = Framer(framing)
    events = []
    for body in bodies:
        events += framer.split(body)
        assert len(framer.held) <= EVENT_LIMIT
    events += framer.close()
    return [(event.rstrip(b"\r\n"), type(event) is Oversized) for event in events]


@pytest.mark.parametrize(
    ("content_type", "framing"),
    [
        ("text/event-stream", "sse"),
        ("Text/Event-Stream; charset=utf-8", "sse"),
        ("application/x-ndjson", "ndjson"),
        ("application/ndjson", "ndjson"),
        ("application/jsonlines", "ndjson"),
        ("application/json-seq", "ndjson"),
        ("text/plain;charset=utf-8", "text"),
        ("application/json", None),
        ("audio/mpeg", None),
        ("", None),
    ],
)
def test_framing_of_content_type(content_type, framing):
    """The media type decides, its parameters do not."""
    assert framing_of(content_type) == framing


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        (b"data: a\n\n", Fields("", b"a", commented=False)),
        (b"data:a\ndata:  b\r\ndata\r\r", Fields("", b"a\n b\n", commented=False)),
        (b"event: x\nid: 1\nretry: 5\nother\ndata: a", Fields("x", b"a", commented=False)),
        (b"event:x\nevent:y\n\n", Fields("y", None, commented=False)),
        (b":\n", Fields("", None, commented=True)),
        (b"data: a\n: b\n\n", Fields("", b"a", commented=True)),
        (b"\xef\xbb\xbfdata: a\n\n", Fields("", b"a", commented=False)),
        (b"event: \xff\n\n", Fields("�", None, commented=False)),
        ("data: a\u2028b\x85c\x0bd\n\n".encode(), Fields("", "a\u2028b\x85c\x0bd".encode(), False)),
    ],
)
def test_fields_of_an_event(event, fields):
    """Data lines are joined, one blank after the colon is dropped, other fields are skipped."""
    assert fields_of(event) == fields


def test_line_of_json():
    """A JSON line is data as it is, but for a byte order mark."""
    assert line_of(b"\xef\xbb\xbf{}\n") == Fields("", b"{}\n", commented=False)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("last", [b"", b"@", b"@@", b"@@@@"])
def test_events_end_with_a_blank_line(end, last):
    """Blank lines part events, comments end with their line, and the last needs no end."""
    stream = b"@@data: a@b@@@@: c@:@data: d@@\xef\xbb\xbf:e@data: f".replace(b"@", end)
    expected = [b"data: a" + end + b"b", b": c", b":", b"data: d", b"\xef\xbb\xbf:e", b"data: f"]

    for bodies in every_cut(stream + last.replace(b"@", end)):
        assert events_of(bodies) == [(event, False) for event in expected]


def test_line_ends_may_be_mixed():
    """A blank line is a line end after a line end, whatever their kinds."""
    stream = b"a\r\n\nb\n\r\nc\r\rd\n\re\r\n\r\nf\n\n\r\ng"

    for bodies in every_cut(stream):
        assert events_of(bodies) == [(bytes([byte]), False) for byte in b"abcdefg"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_json_lines_end_with_a_line_end(end):
    """Each line is an event; blank ones are none."""
    stream = b"{}@@[]@:c@5".replace(b"@", end)

    for bodies in every_cut(stream):
        assert events_of(bodies, "ndjson") == [(e, False) for e in (b"{}", b"[]", b":c", b"5")]


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
@pytest.mark.parametrize("size", [EVENT_LIMIT - 1, EVENT_LIMIT, EVENT_LIMIT + 1, 3 * EVENT_LIMIT])
def test_an_event_beyond_the_limit_is_known_by_its_head(size, end):
    """The same events are oversized, with the same head, wherever they are cut."""
    long = b"data:" + b"x" * (size - 5)
    stream = long + end + b"data: a" + end
    # LF CR is what closes an event whose lines end with CR LF; the CR before it counts.
    oversized = size + (end == b"\r\n\r\n") >= EVENT_LIMIT
    expected = [(long[:HEAD_LIMIT] if oversized else long, oversized), (b"data: a", False)]

    assert events_of([stream]) == expected
    for place in (1, HEAD_LIMIT, EVENT_LIMIT, EVENT_LIMIT + 1, *range(size - 1, size + len(end))):
        assert events_of(cut_at(stream, min(place, len(stream)))) == expected
    assert events_of([stream[i : i + 7] for i in range(0, len(stream), 7)]) == expected


def test_an_oversized_event_may_be_the_last():
    """The end of the stream closes an oversized event, too."""
    assert events_of([b"x" * EVENT_LIMIT, b"x"]) == [(b"x" * HEAD_LIMIT, True)]
    assert events_of([b"x" * EVENT_LIMIT]) == [(b"x" * EVENT_LIMIT, False)]


def test_an_oversized_comment_ends_with_its_line():
    """A comment of any length does not swallow the event after it."""
    stream = b":" + b"x" * EVENT_LIMIT * 2 + b"\ndata: a\n\n"

    for bodies in ([stream], cut_at(stream, 100_000), cut_at(stream, len(stream) - 10)):
        assert events_of(bodies) == [((b":" + b"x" * 9999)[:HEAD_LIMIT], True), (b"data: a", False)]


def test_a_framer_starts_afresh_after_its_close():
    """Nothing of an unfinished event outlives the end of the stream."""
    framer = Framer("sse")
    framer.split(b"x" * EVENT_LIMIT * 2)
    framer.close()

    assert framer.split(b"data: a\n\n") == [b"data: a\n\n"]
    assert framer.close() == []


class CountingPattern:
    """A closing pattern that counts the bytes which it is asked to search."""

    def __init__(self, pattern):
        self.pattern = pattern
        self.searched = 0

    def search(self, data, start):
        """Search as the pattern does."""
        self.searched += len(data) - start
        return self.pattern.search(data, start)


def test_no_byte_is_searched_more_than_twice():
    """Work grows with the stream, not with its square, for an event that never ends."""
    framer = Framer("sse")
    plain, pattern = framer._closing
    counting = CountingPattern(pattern)
    framer._closing = (plain, counting)
    size = 200_000
    for _ in range(size // 2):
        framer.split(b"x\r")  # searched with the pattern, for its CR

    assert size <= counting.searched <= 2 * size
    assert len(framer.held) == HEAD_LIMIT + 1


@pytest.mark.parametrize("filler", [b"x", b"\n", b"\r", b":\n", b"data: x\n"])
def test_whatever_fills_a_stream_little_is_held(filler):
    """An event, comment or blank line that goes on for four times the limit stays bounded."""
    framer = Framer("sse")
    for _ in range(4 * EVENT_LIMIT // len(filler)):
        framer.split(filler)
        assert len(framer.held) <= EVENT_LIMIT


def test_ten_megabytes_without_a_line_end_hold_a_head():
    """A body of any size leaves no more than the head behind."""
    framer = Framer("sse")

    assert framer.split(b"x" * 10 * 2**20) == []
    assert len(framer.held) == HEAD_LIMIT + 1


@given(st.lists(st.sampled_from([b"\r", b"\n", b":", b"x", b"\xef\xbb\xbf", b"data: "])), st.data())
def test_any_cut_gives_the_same_events(pieces, data):
    """No mix of line ends, comments and marks depends on where it is cut."""
    stream = b"".join(pieces)
    places = data.draw(st.lists(st.integers(0, len(stream))))

    assert events_of(cut_at(stream, *places)) == events_of([stream])
