"""The usual token event of a stream, learned from one that was read in full.

Within a stream, token events differ in the content string and little else. So the bytes before
and after that string are remembered, and an event is usual if it has the same bytes around a
string that is not empty and has no bare quote: then nothing between the two can leave the JSON
string, and the event says what the learned one said, with other content. No JSON is decoded.
Whatever does not fit is read in full, so a shape may miss tokens but does not invent them. (A line
end inside of a string is not JSON; a server that sends one has still sent a token.)

Three things may vary besides:

- digits outside of the content (`sequence_number`, `created`, timestamps) and blanks (padding):
  the loose shape compares with both deleted, from the event too. No JSON escape loses its second
  character by that;
- OpenAI's `"obfuscation":"<random>"`, a second string at the end.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["EVENT_LIMIT", "Shape", "is_escaped", "loosened"]

_QUOTE: Final = ord('"')
_ESCAPED: Final = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*')
_EMPTY: Final = b'""'
_LOOSE: Final = b"0123456789 "
_PADDING_KEY: Final = b'"obfuscation":'

# A request in flight may cost 4 KiB, of which two copies of a shape take the half.
EVENT_LIMIT: Final = 1024


def loosened(data: bytes) -> bytes:
    """Return `data` without digits and blanks, for a loose shape to look at."""
    return data.translate(None, _LOOSE)


class Shape:
    """Fixed bytes around one content string and, perhaps, one padding string.

    Attributes:
        head: From the start of the event up to and including the quote that opens the content.
        tail: From the quote that closes the content up to the end of the event, or up to the
            quote that opens the padding.
        end: What follows the quote that closes the padding; empty if there is no padding.
        bits: What such an event is, in bits of `Seen`.
    """

    __slots__ = ("bits", "end", "head", "tail")

    def __init__(self, head: bytes, tail: bytes, end: bytes, bits: int) -> None:
        self.head = head
        self.tail = tail
        self.end = end
        self.bits = bits

    @classmethod
    def learned(cls, event: bytes, key: str, content: str, bits: int) -> Shape | None:
        """Learn from `event`, which has `content` under `key`; any other content stays as it is.

        Returns None if the string is not spelled plainly (escapes, invalid UTF-8), if the bytes
        leave any doubt where it lies, or if the event is too long to be kept.
        """
        start = _start_of_string(event, key.encode())
        plain = content.encode("utf-8", "replace") + b'"'
        if start < 0 or len(event) > EVENT_LIMIT or not event.startswith(plain, start):
            return None
        head, tail = event[:start], event[start + len(plain) - 1 :]
        return cls(head, *_without_padding(tail), bits)

    def loose(self) -> Shape | None:
        """Return this shape without digits and blanks.

        Returns None if it holds a string that is empty then: one of nothing but digits, which may
        be content, could not be told from it.
        """
        head, tail, end = loosened(self.head), loosened(self.tail), loosened(self.end)
        is_doubtful = _EMPTY in head or _EMPTY in tail or _EMPTY in end
        return None if is_doubtful else Shape(head, tail, end, self.bits)

    def fits(self, event: bytes) -> bool:
        """Say whether `event` is usual."""
        if self.end:
            event, _, end = event.rpartition(b'"')
            if end != self.end:
                return False
            event = event.rpartition(b'"')[0]
        if not (event.startswith(self.head) and event.endswith(self.tail)):
            return False
        content = event[len(self.head) : -len(self.tail)]
        return bool(content) and (_QUOTE not in content or is_escaped(content))

    def count(self, data: bytes) -> int:
        """Return how many usual events without padding `data` consists of, 0 if of other things."""
        if self.end:
            return 0
        head, tail = self.head, self.tail
        head_size, tail_size, size = len(head), len(tail), len(data)
        events = start = 0
        while start < size:
            begin = start + head_size
            close = data.find(_QUOTE, begin)
            stop = close + tail_size
            if close <= begin or data[start:begin] != head or data[close:stop] != tail:
                return 0
            events += 1
            start = stop
        return events


def is_escaped(content: bytes) -> bool:
    """Say whether all quotes in `content` are escaped."""
    if len(content) > EVENT_LIMIT or not content[: content.find(_QUOTE)].endswith(b"\\"):
        return False
    return _ESCAPED.fullmatch(content) is not None


def _start_of_string(event: bytes, key: bytes) -> int:
    """Return where the string under `key` begins, -1 unless there is exactly one such key."""
    # Spelled as JSON encoders do, with or without a blank. Inside of a string the quotes of such a
    # mark would be escaped, so a mark is a key.
    tight, wide = b'"' + key + b'":"', b'"' + key + b'": "'
    if event.count(tight) + event.count(wide) != 1:
        return -1
    start = event.find(tight)
    return start + len(tight) if start >= 0 else event.find(wide) + len(wide)


def _without_padding(tail: bytes) -> tuple[bytes, bytes]:
    """Return `tail` up to its padding and what follows the padding, if that is its last string."""
    rest, quote, end = tail.rpartition(b'"')
    kept, _, _ = rest.rpartition(b'"')
    return (kept, end) if quote and kept.endswith(_PADDING_KEY) else (tail, b"")
