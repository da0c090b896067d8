"""Finds tokens in a streamed response body: sans-I/O, any dialect, any cut.

`TokenDetector.feed` is called for every body message of a stream and returns what the events
completed by it were, in bits of `Seen`. It never raises, whatever the bytes, takes linear time and
holds at most 64 KiB.

Its cost decides what tracing costs a server: so the usual case, an event of the shape learned
before (see `shape`), is known by comparison, and JSON is decoded only where that fails. A hot loop
may compare in place, by `usual`, and feed only the others; it adds what it did not feed to
`facts.token_events`. This module knows no clock, no sockets and no request.
"""

from __future__ import annotations

from typing import Final

from llm_trace.asgi.sse.dialect import read
from llm_trace.asgi.sse.facts import REASONS_LIMIT, Seen, StreamFacts, Usage
from llm_trace.asgi.sse.framing import Framer, Oversized, fields_of, framing_of, line_of
from llm_trace.asgi.sse.memory import Memory, opening_of
from llm_trace.asgi.sse.oversized import bits_of_head
from llm_trace.asgi.sse.shape import EVENT_LIMIT, Shape, loosened

__all__ = ["Seen", "StreamFacts", "TokenDetector", "Usage", "framing_of"]

_FRAMINGS: Final = ("sse", "ndjson", "text")

# What no event begins with.
_NEVER: Final = b"\x00"

# Ends nearly every stream; read as any other event where it is spelled otherwise.
_DONE: Final = b"data: [DONE]\n\n"

_SERVED_WELL: Final = 4


class TokenDetector:
    """Recognises what the bodies of one stream carry.

    Args:
        framing: "sse" (server-sent events), "ndjson" (a JSON object a line) or "text" (every body
            that is not empty is a token).
        memory: What earlier streams of the server said; None remembers nothing.

    Raises:
        ValueError: If `framing` is none of these.
    """

    __slots__ = (
        "_bits",
        "_framer",
        "_head",
        "_loose",
        "_memory",
        "_missed_at",
        "_shape",
        "_sse",
        "_tail",
        "_uncounted",
        "_unloosened",
        "facts",
        "held",
    )

    def __init__(self, framing: str, memory: Memory | None = None) -> None:
        if framing not in _FRAMINGS:
            accepted = ", ".join(map(repr, _FRAMINGS))
            raise ValueError(f"framing must be one of {accepted}, not {framing!r}")
        self.facts = StreamFacts()
        self._sse = framing == "sse"
        self._memory = memory if self._sse else None
        self._framer = None if framing == "text" else Framer(framing)
        self.held = self._framer.held if self._framer else bytearray()
        self._shape: Shape | None = None
        self._loose: Shape | None = None
        self._unloosened: Shape | None = None
        self._missed_at = 0
        self._bits = 0
        self._uncounted = b""
        # The shape for bodies of one event, in the form that is cheapest to compare.
        self._head, self._tail = _NEVER, _NEVER

    def feed(self, body: bytes) -> int:
        """Return what the events completed by `body` were; 0 if it completes none."""
        # Servers hand memoryview and bytearray through, too.
        body = body if type(body) is bytes else bytes(body)
        if not body:
            return 0
        if self._framer is None:
            self.facts.token_events += 1
            return Seen.TOKEN | Seen.ANSWER
        if self.held:
            return self._read_all(self._framer.split(body))
        return self._whole(body, self._framer)

    @property
    def usual(self) -> tuple[bytes, bytes]:
        """What stands before and after the content of a usual event, for a hot loop to compare.

        While nothing is `held`, a body of the first, some bytes without a bare quote, and the
        second, is one event with a token of the last kind, and need not be fed. See shape for why.
        """
        return self._head, self._tail

    def close(self) -> int:
        """Return what the event was that the end of the stream left open; 0 if there is none."""
        bits = self._read_all(self._framer.close()) if self._framer else 0
        self._count()
        return bits

    def _whole(self, body: bytes, framer: Framer) -> int:
        """Return what a body is that begins an event, and most often is one."""
        if body == _DONE and self._sse:
            return Seen.END
        if events := self._usual(body):
            self.facts.token_events += events
            return self._bits
        if framer.is_one_event(body):  # which `_usual` has just called unusual
            bits = self._read_unusual(body)
        elif self._fits_loosely(body):
            bits = self._bits
        else:
            return self._read_all(framer.split(body))
        self.facts.token_events += bits & Seen.TOKEN
        return bits

    def _usual(self, body: bytes) -> int:
        """Return how many usual events `body` consists of, 0 if it holds anything else."""
        shape = self._shape
        if shape is None:
            return 0
        if shape.fits(body):
            return 1
        is_long = len(body) > 2 * (len(shape.head) + len(shape.tail))
        return shape.count(body) if is_long else 0

    def _fits_loosely(self, event: bytes) -> bool:
        """Say whether `event` is usual but for its digits, blanks and padding."""
        if self._unloosened is not None:  # made when it is first wanted: most streams never do
            self._loose, self._unloosened = self._unloosened.loose(), None
        if self._loose is None or not self._loose.fits(loosened(event)):
            return False
        if self._bits & Seen.USAGE:
            if len(event) > EVENT_LIMIT:
                return False
            self._uncounted = event
            return True
        tokens = self.facts.token_events
        served, self._missed_at = tokens - self._missed_at, tokens
        # Learn the exact shape afresh if it did well until now: it will again in streams that stamp
        # each chunk with the second, and will not in streams that number them.
        if served > _SERVED_WELL:
            self._parse(event)
        return True

    def _read_all(self, events: list[bytes]) -> int:
        bits = 0
        for event in events:
            found = self._oversized(event) if type(event) is Oversized else self._read(event)
            if found & Seen.TOKEN:
                self.facts.token_events += 1
            bits |= found
        return bits

    def _read(self, event: bytes) -> int:
        """Return what a whole event is."""
        if self._shape is not None and self._shape.fits(event):
            return self._bits
        return self._read_unusual(event)

    def _read_unusual(self, event: bytes) -> int:
        """Return what an event is that has not the shape: remembered, nearly usual, or neither."""
        if self._bits & Seen.USAGE:
            if self._fits_loosely(event):
                return self._bits
            self._count()
        if self._memory is not None and (bits := self._recall(event, self._memory)):
            return bits
        return self._bits if self._fits_loosely(event) else self._parse(event)

    def _recall(self, event: bytes, memory: Memory) -> int:
        """Return what an event is whose like was read before, 0 if none was."""
        opening = opening_of(event)
        if opening is None:
            return 0
        if bits := memory.said(opening, self.facts):
            return bits
        shape = memory.shape(opening, self.facts)
        self._learn(shape)
        return shape.bits if shape else 0

    def _parse(self, event: bytes) -> int:
        """Read an event in full, and learn its shape if there is nothing but a token."""
        reasons, told = len(self.facts.finish_reasons), self.facts.told()
        reading = read(fields_of(event) if self._sse else line_of(event), self.facts)
        shape = None
        if reading.pure:
            shape = Shape.learned(event, reading.key, reading.text, reading.bits)
            self._learn(shape)
        elif reading.counted:
            self._learn_counted(Shape.learned(event, reading.key, reading.text, reading.bits))
        if self._memory is not None and told == self.facts.told():
            said = tuple(self.facts.finish_reasons[reasons:])
            if len(self.facts.finish_reasons) < REASONS_LIMIT:  # else some may be left out
                self._memory.learn(event, shape, reading.bits, said)
        return reading.bits

    def _oversized(self, head: bytes) -> int:
        bits = bits_of_head(head)
        if bits & Seen.ERROR and self.facts.error_type is None:
            self.facts.error_type = "error"
        self.facts.malformed += not bits
        return bits

    def _learn(self, shape: Shape | None) -> None:
        if shape is None:
            return
        self._shape, self._bits = shape, shape.bits
        self._loose, self._unloosened = None, shape
        # Padding varies, too, which two comparisons cannot tell.
        self._head = _NEVER if shape.end else shape.head
        self._tail = shape.tail

    def _learn_counted(self, shape: Shape | None) -> None:
        """Learn from a token with counts: the next have others, so none is usual at sight."""
        if shape is None:
            return
        self._shape, self._bits = None, shape.bits
        self._loose, self._unloosened = None, shape
        self._head = _NEVER

    def _count(self) -> None:
        """Read the counts of the last event that fitted but for its digits; no other's are left."""
        event, self._uncounted = self._uncounted, b""
        if event:
            read(fields_of(event) if self._sse else line_of(event), self.facts)
