"""Where events begin and end: server-sent events and JSON lines, without I/O.

This module knows bytes and line ends only. It finds events in a stream that is cut anywhere, in
linear time and bounded memory; what an event means is the dialects' business.

Line ends are LF, CRLF and CR, nothing else (U+2028 and U+0085 are text). A blank line is a line
end right after a line end, so its first two bytes are one of LF LF, LF CR, CR CR: the LF that may
follow belongs to the same line end, and is skipped as a blank line if it comes in the next body.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = [
    "EVENT_LIMIT",
    "HEAD_LIMIT",
    "Fields",
    "Framer",
    "Oversized",
    "fields_of",
    "framing_of",
    "line_of",
]

EVENT_LIMIT: Final = 64 * 1024
"""Bytes of one event that are held; a longer event is known by its head only."""
HEAD_LIMIT: Final = 4 * 1024
"""Bytes kept of an event that is too long."""

_BOM: Final = b"\xef\xbb\xbf"
_COMMENT: Final = (b":", _BOM + b":")

# What closes an event, by its plain form and by all of its forms. Searching the plain one is ten
# times as fast, and nearly all there is.
_BLANK_LINE: Final = (b"\n\n", re.compile(rb"[\r\n](?:\r\n?|(?<=\n)\n)"))
_LINE_END: Final = (b"\n", re.compile(rb"\r\n?|\n"))
_LINE_ENDS: Final = re.compile(rb"[\r\n]*")
_LF, _CR = b"\n\r"

_FRAMINGS: Final = {
    "text/event-stream": "sse",
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonlines": "ndjson",
    "application/x-jsonlines": "ndjson",
    "application/jsonl": "ndjson",
    "application/json-seq": "ndjson",
    "text/plain": "text",
}


def framing_of(content_type: str) -> str | None:
    """Return "sse", "ndjson" or "text" for a Content-Type that streams, None for any other."""
    return _FRAMINGS.get(content_type.partition(";")[0].strip().lower())


class Oversized(bytes):
    """The head of an event that was too long to be held."""

    __slots__ = ()


class Fields(NamedTuple):
    """The lines of a server-sent event, taken apart."""

    name: str
    """Value of the last `event` field; empty if there is none."""
    data: bytes | None
    """The `data` lines joined with LF; None if there is none."""
    commented: bool


def fields_of(raw: bytes) -> Fields:
    """Take a server-sent event apart; unknown fields, `id` and `retry` are skipped."""
    if raw[:6] == b"data: " and raw.find(b"\n") == len(raw) - 2 and _CR not in raw:
        return Fields("", raw[6:-2], commented=False)  # what nearly every event is
    name, lines, commented = b"", [], False
    # bytes.splitlines() knows exactly the three line ends of the format.
    for line in raw.removeprefix(_BOM).splitlines():
        field, _, value = line.partition(b":")
        if field == b"data":
            lines.append(value.removeprefix(b" "))
        elif field == b"event":
            name = value.removeprefix(b" ")
        commented = commented or line[:1] == b":"
    return Fields(name.decode("utf-8", "replace"), b"\n".join(lines) if lines else None, commented)


def line_of(raw: bytes) -> Fields:
    """Return a JSON line as the data of an event without a name."""
    return Fields("", raw.removeprefix(_BOM), commented=False)


class Framer:
    """Cuts a stream into events.

    `held` is the beginning of an event that is still open. It is one bytearray for life, so that
    the owner may keep a reference and ask it "is anything open?" at no cost. It never exceeds
    `EVENT_LIMIT`; of an event beyond that only the head and the last byte stay.
    """

    __slots__ = ("_closing", "_oversized", "_searched", "held")

    def __init__(self, framing: str) -> None:
        self._closing = _BLANK_LINE if framing == "sse" else _LINE_END
        self._oversized = False
        self._searched = 0  # bytes of `held` in which no event ends
        self.held = bytearray()

    def split(self, body: bytes) -> list[bytes]:
        """Return the events that `body` completes, in order.

        Each is whole, with the line end or blank line that closed it, or else `Oversized`.
        """
        data: bytes | bytearray = body
        if self.held:
            self.held += body
            data = self.held
        events: list[bytes] = []
        plain = _CR not in body  # what `held` has of them closes nothing by itself
        start = _skip_line_ends(data, 0)
        while start < len(data):
            close, stop = self._close_of(data, start, plain=plain)
            if close < 0:
                break
            events.append(self._event(data, start, close, stop))
            start = _skip_line_ends(data, stop)
        self._hold(data, start)
        return events

    def is_one_event(self, body: bytes) -> bool:
        """Say whether `body` is one line and the blank line that closes it: nearly every one is."""
        return (
            body[:5] == b"data:"
            and body.find(b"\n") == len(body) - 2
            and body[-1:] == b"\n"
            and _CR not in body
            and self._closing is _BLANK_LINE
            and len(body) < EVENT_LIMIT
        )

    def close(self) -> list[bytes]:
        """Return the event that the end of the stream left open, if any."""
        held = bytes(self.held)
        oversized = self._oversized
        self.held.clear()
        self._searched, self._oversized = 0, False
        return [Oversized(held[:HEAD_LIMIT]) if oversized else held] if held else []

    def _close_of(self, data: bytes | bytearray, start: int, *, plain: bool) -> tuple[int, int]:
        """Return where the event at `start` is closed and where that ends; -1 if it is not."""
        # A comment ends with its line: a server may send thousands of them before a blank line.
        form, all_forms = _LINE_END if data.startswith(_COMMENT, start) else self._closing
        unsearched = start + self._searched
        if plain:
            close = data.find(form, unsearched)
            return close, close + len(form)
        found = all_forms.search(data, unsearched)
        return found.span() if found else (-1, -1)

    def _event(self, data: bytes | bytearray, start: int, close: int, stop: int) -> bytes:
        """Cut out one event and be ready for the next."""
        # Measured up to the two bytes that close it: what follows them may come in a later body.
        oversized = self._oversized or close - start >= EVENT_LIMIT
        self._searched, self._oversized = 0, False
        return Oversized(data[start : start + HEAD_LIMIT]) if oversized else bytes(data[start:stop])

    def _hold(self, data: bytes | bytearray, start: int) -> None:
        """Keep what is left of `data` from `start` on, within bounds."""
        held = self.held
        if data is held:
            del held[:start]
        else:
            held += data[start:]
        if self._oversized or len(held) > EVENT_LIMIT:
            self._oversized = True
            del held[HEAD_LIMIT:-1]
        # The last byte may be the first half of a blank line.
        self._searched = max(len(held) - 1, 0)


def _skip_line_ends(data: bytes | bytearray, start: int) -> int:
    """Return the offset of the first byte from `start` on that is no line end."""
    if start == len(data) or data[start] not in (_LF, _CR):
        return start
    found = _LINE_ENDS.match(data, start)
    return found.end() if found else start  # it always matches; the type does not say so
