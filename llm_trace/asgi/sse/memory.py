"""What the streams of one server say alike, remembered across streams: no JSON is decoded twice.

A chunk of OpenAI's chat or completions opens with members that name the stream (`id`, `object`,
`created`, `model`). What follows is, in every stream of a server, the same few texts: the role at
the beginning, the finish at the end, and around the content the same bytes. So what such a rest
turned out to be is remembered by its bytes, and a later event with the same rest says the same,
for its own stream. Content and counts are never remembered.

The opening is matched strictly, plain words in the usual order; a rest with an id, a model or
metrics of its own is left to the reader of JSON, and so is everything that was not met before.
"""

from __future__ import annotations

import re
from json import JSONDecoder
from typing import Final

from llm_trace.asgi.sse.facts import Seen, StreamFacts
from llm_trace.asgi.sse.reading import Reading
from llm_trace.asgi.sse.shape import EVENT_LIMIT, Shape

__all__ = ["Memory", "Opening", "opening_of"]

_OPENING: Final = re.compile(
    rb'data: \{"id": ?"([\w.:-]{1,128})", ?"object": ?"(?:chat\.completion\.chunk|text_completion)"'
    rb', ?"created": ?\d{1,12}, ?"model": ?"([\w./:@-]{1,256})", ?'
)
_COUNTED: Final = re.compile(rb'"choices": ?\[\], ?"usage": ?(?=\{)')
_PLAIN: Final = re.compile(rb'[^"\\\x00-\x1f]+')
_NAMES: Final = (b'"id"', b'"model"', b'"metrics"')
"""What is a stream's own."""
_CLOSE: Final = b"}\n\n"
_REMEMBERED: Final = Seen.ROLE | Seen.FINISH
_MAX_SAID: Final = 64
_MAX_FORMS: Final = 8

_decode: Final = JSONDecoder(strict=False).raw_decode


Opening = re.Match[bytes]
"""An event whose first members name its stream in plain words: id and model are its groups."""


def opening_of(event: bytes) -> Opening | None:
    """The opening of `event`, if it has the usual one."""
    return _OPENING.match(event)


class Memory:
    """The rests that a server's events were seen to have; bounded in number and size."""

    __slots__ = ("_forms", "_said")

    def __init__(self) -> None:
        self._said: dict[bytes, tuple[int, tuple[str, ...]]] = {}
        """By rest: the bits of its event, and its finish reasons."""
        self._forms: list[tuple[bytes, bytes, int]] = []
        """What stands before and after the content of a token, and its bits."""

    def said(self, opening: Opening, facts: StreamFacts) -> int:
        """The bits of an event without content, its facts noted; 0 if it is not known."""
        rest = opening.string[opening.end() :]
        known = self._said.get(rest)
        if known is None:
            bits = _counts(rest, facts)
        else:
            bits, reasons = known
            for reason in reasons:
                facts.add_reason(reason)
        if bits:
            facts.name(*opening.groups())
        return bits

    def shape(self, opening: Opening, facts: StreamFacts) -> Shape | None:
        """The shape of an event with a token, if its form is known."""
        event, size = opening.string, opening.end()
        if len(event) > EVENT_LIMIT:
            return None
        for before, after, bits in self._forms:
            if event.startswith(before, size) and event.endswith(after):
                head = size + len(before)
                if _PLAIN.fullmatch(event, head, len(event) - len(after)):
                    facts.name(*opening.groups())
                    return Shape(event[:head], after, b"", bits)
        return None

    def learn(self, event: bytes, shape: Shape | None, bits: int, reasons: tuple[str, ...]) -> None:
        """Remember an event that was read in full: the form of a token, or all of another's rest.

        Args:
            event: Its bytes.
            shape: Its shape, if it is a token of which one could be learned.
            bits: What it was.
            reasons: The finish reasons in it.
        """
        opening = opening_of(event)
        if opening is None:
            return
        if shape is not None:
            self._learn_form(opening.end(), shape)
        elif bits and not bits & ~_REMEMBERED:
            rest = event[opening.end() :]
            if _may_be_kept(rest):
                if len(self._said) >= _MAX_SAID:  # what is said again is learned again
                    self._said.clear()
                self._said[rest] = bits, reasons

    def _learn_form(self, size: int, shape: Shape) -> None:
        form = shape.head[size:], shape.tail, shape.bits
        is_whole = len(shape.head) > size and not shape.end
        if is_whole and form not in self._forms and _may_be_kept(form[0] + form[1]):
            self._forms = [form, *self._forms[: _MAX_FORMS - 1]]


def _may_be_kept(rest: bytes) -> bool:
    return len(rest) <= EVENT_LIMIT and not any(name in rest for name in _NAMES)


def _counts(rest: bytes, facts: StreamFacts) -> int:
    """Note the counts of an event that has nothing else; 0 if it is no such event."""
    opened = _COUNTED.match(rest)
    if opened is None or not rest.endswith(_CLOSE):
        return 0
    try:
        text = rest[opened.end() : -len(_CLOSE)].decode()
        usage, end = _decode(text)
    except (ValueError, RecursionError):
        return 0
    reading = Reading(facts)
    if end == len(text):
        reading.usage(usage)
    return reading.bits
