"""Events too long to be held: told from their first bytes, by names alone.

An audio delta may be a megabyte, and the event that ends a response repeats all of its text. The
type usually comes first; where it does not, the names of fields tell. What a string of content
holds cannot mislead, as quotes inside of it are escaped.
"""

from __future__ import annotations

import re
from typing import Final

from llm_trace.asgi.sse.facts import Seen
from llm_trace.asgi.sse.reading import ANSWER, CALL, REASONING
from llm_trace.asgi.sse.typed import BITS_OF_TYPE, kind_of_delta

__all__ = ["bits_of_head"]

_TYPE: Final = re.compile(rb'(?m:^event: ?|"type" ?: ?")([a-z_.]{1,64})')
_BLOCK_TYPE: Final = re.compile(rb'"(text|thinking|input_json)_delta"')
_ERROR: Final = re.compile(rb'"error" ?: ?["{]')
_FINISH: Final = re.compile(rb'"finish_reason" ?: ?"')
_STRING: Final = re.compile(
    rb'"(content|text|refusal|data|transcript|response|'
    rb'reasoning|reasoning_content|thinking|arguments|partial_json|input)" ?: ?"[^"]'
)

_KINDS: Final = {
    b"reasoning": REASONING,
    b"reasoning_content": REASONING,
    b"thinking": REASONING,
    b"arguments": CALL,
    b"input": CALL,
    b"partial_json": CALL,
    b"input_json": CALL,
}


def bits_of_head(head: bytes) -> int:
    """Return what the event that begins with `head` is; 0 if it cannot be told."""
    if head[:1] == b":":
        return Seen.COMMENT
    found = _TYPE.search(head)
    kind = found[1].decode() if found else ""
    if kind.endswith(".delta"):
        return kind_of_delta(kind)
    if kind == "content_block_delta":
        return _kind_of(_BLOCK_TYPE.search(head))
    return BITS_OF_TYPE.get(kind, 0) or _bits_of_names(head)


def _bits_of_names(head: bytes) -> int:
    if _ERROR.search(head):
        return Seen.ERROR
    bits = _kind_of(_STRING.search(head))
    if _FINISH.search(head):
        bits |= Seen.FINISH
    if not bits and b'"choices"' in head:
        bits = Seen.ROLE  # such as a first chunk that repeats the prompt's token ids
    return bits


def _kind_of(found: re.Match[bytes] | None) -> int:
    return _KINDS.get(found[1], ANSWER) if found else 0
