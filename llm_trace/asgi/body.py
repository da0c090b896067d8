"""A bounded copy of a JSON body that passes by, and what a generation request says in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from llm_trace import semconv as s
from llm_trace.asgi.sse.facts import as_word

MAX_TEXT: Final = 256
MAX_STOPS: Final = 16


class BodyCopy:
    """The first bytes of a body; gives up, and says so, past the bound."""

    __slots__ = ("_limit", "_parts", "_size")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._parts: list[bytes] | None = []

    def feed(self, body: bytes) -> None:
        """Keep `body`, or drop all once the bound is passed."""
        self._size += len(body)
        if self._size > self._limit:
            self._parts = None
        elif self._parts is not None and body:
            self._parts.append(bytes(body))  # a server may use its buffer again

    def document(self) -> Mapping[str, Any] | None:
        """The JSON object that was copied, or None: too large, not JSON, not an object."""
        if not self._parts:
            return None
        try:
            document = json.loads(b"".join(self._parts))
        except (ValueError, RecursionError):
            return None
        return document if isinstance(document, dict) else None


def _number(value: object) -> int | float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < 2**53 else None


def _whole(value: object) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number == int(number) else None


def _stops(value: object) -> tuple[str, ...] | None:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        return None
    return tuple(as_word(stop, MAX_TEXT) or "" for stop in stops[:MAX_STOPS]) or None


def _choices(value: object) -> int | None:
    choices = _whole(value)
    return None if choices == 1 else choices


_FACTS: Final = (
    (s.REQUEST_MAX_TOKENS, "max_completion_tokens", _whole),
    (s.REQUEST_MAX_TOKENS, "max_output_tokens", _whole),
    (s.REQUEST_MAX_TOKENS, "max_tokens", _whole),
    (s.REQUEST_TEMPERATURE, "temperature", _number),
    (s.REQUEST_TOP_P, "top_p", _number),
    (s.REQUEST_TOP_K, "top_k", _number),
    (s.REQUEST_SEED, "seed", _whole),
    (s.REQUEST_STOP_SEQUENCES, "stop", _stops),
    (s.REQUEST_STOP_SEQUENCES, "stop_sequences", _stops),
    (s.REQUEST_CHOICE_COUNT, "n", _choices),
    (s.REQUEST_STREAM, "stream", lambda value: True if value is True else None),
)
"""Attribute, a field that may carry it (the first that does wins), and how its value is made
safe."""


def request_facts(document: Mapping[str, Any]) -> dict[str, object]:
    """`gen_ai.request.*` attributes of a request body; never content."""
    facts: dict[str, object] = {}
    for attribute, name, safe in _FACTS:
        value = document.get(name)
        made = safe(value) if value is not None and attribute not in facts else None
        if made is not None:
            facts[attribute] = made
    return facts


def model_of(document: Mapping[str, Any]) -> str | None:
    """The model that a request asks for, bounded."""
    return as_word(document.get("model"), MAX_TEXT)
