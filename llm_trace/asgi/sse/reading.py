"""What one event turned out to be, gathered while a dialect reads it.

This module owns what all dialects share: tokens, finish reasons, usage, errors. It knows no event
types and no framing.
"""

from __future__ import annotations

from typing import Final

from llm_trace.asgi.sse.facts import (
    METRICS,
    Seen,
    StreamFacts,
    Usage,
    as_dict,
    as_ms,
    as_word,
)
from llm_trace.core.usage import count

__all__ = ["ANSWER", "CALL", "REASONING", "Reading"]

ANSWER: Final = Seen.TOKEN | Seen.ANSWER
REASONING: Final = Seen.TOKEN | Seen.REASONING
CALL: Final = Seen.TOKEN | Seen.ANSWER | Seen.TOOL_CALL

_TOKEN_BITS: Final = CALL | REASONING
_CODE_LIMIT: Final = 2**63
_STATUS: Final = range(400, 600)


class Reading:
    """The bits of one event and its content; facts go straight to the stream's.

    Attributes:
        bits: What was seen, in bits of `Seen`.
        facts: The facts of the stream that the event belongs to.
        key: JSON key of the last content string.
        text: The last content string.
    """

    __slots__ = ("bits", "facts", "key", "text")

    def __init__(self, facts: StreamFacts) -> None:
        self.bits = 0
        self.facts = facts
        self.key = ""
        self.text = ""

    @property
    def pure(self) -> bool:
        """Whether the event is content and nothing else worth knowing."""
        return bool(self.text) and not self.bits & ~_TOKEN_BITS

    @property
    def counted(self) -> bool:
        """Whether the event is content and its counts, as servers send them that count along."""
        return bool(self.text) and self.bits & ~_TOKEN_BITS == Seen.USAGE

    def token(self, kind: int, source: dict[str, object], key: str) -> None:
        """Note a token of `kind` if `source` has a non-empty string under `key`."""
        text = source.get(key)
        if type(text) is str and text:
            self.bits |= kind
            self.key, self.text = key, text

    def finish(self, reason: object) -> None:
        """Note why generation stopped, if `reason` says so."""
        word = as_word(reason)
        if word is not None:
            self.bits |= Seen.FINISH
            self.facts.add_reason(word)

    def error(self, error: object) -> None:
        """Note an error object or text; `type` names it, else `code`."""
        self.bits |= Seen.ERROR
        if self.facts.error_type is None:
            source = as_dict(error)
            named = as_word(source.get("type")) or _as_code(source.get("code"))
            self.facts.error_type = named or "error"
            self.facts.error_status = _as_status(source.get("code"))

    def usage(self, reported: object) -> None:
        """Note the counts of a usage object of any dialect; one without counts is none."""
        source = as_dict(reported)
        if source:
            self.counts(_usage_of(source))

    def metrics(self, reported: object) -> None:
        """Note vLLM's own times of the request."""
        source = as_dict(reported)
        known = {name: ms for name in METRICS if (ms := as_ms(source.get(name))) is not None}
        if known:
            self.facts.metrics = known

    def counts(self, usage: Usage) -> None:
        """Note `usage` unless it says nothing."""
        if usage != _NOTHING:
            self.bits |= Seen.USAGE
            self.facts.add_usage(usage)


_NOTHING: Final = Usage()


def _usage_of(source: dict[str, object]) -> Usage:
    outputs = _first_count(source, "completion_tokens", "output_tokens")
    inputs_in = as_dict(source.get("prompt_tokens_details") or source.get("input_tokens_details"))
    outputs_in = as_dict(
        source.get("completion_tokens_details") or source.get("output_tokens_details")
    )
    cached = count(inputs_in.get("cached_tokens"))
    if cached is None:
        cached = count(source.get("cache_read_input_tokens"))
    return Usage(_inputs_of(source), outputs, cached, count(outputs_in.get("reasoning_tokens")))


def _inputs_of(source: dict[str, object]) -> int | None:
    """Return the tokens of the whole prompt, cached or not."""
    inputs = _first_count(source, "prompt_tokens", "input_tokens")
    # Only Anthropic leaves cached tokens out of its count. OpenAI's Responses use the same name,
    # but then with details; proxies that mix both keep OpenAI's `prompt_tokens`.
    apart = "prompt_tokens" not in source and "input_tokens_details" not in source
    if inputs is not None and apart:
        inputs += count(source.get("cache_read_input_tokens")) or 0
        inputs += count(source.get("cache_creation_input_tokens")) or 0
    return inputs


def _first_count(source: dict[str, object], *keys: str) -> int | None:
    for key in keys:
        number = count(source.get(key))
        if number is not None:
            return number
    return None


def _as_status(code: object) -> int | None:
    return code if type(code) is int and code in _STATUS else None


def _as_code(code: object) -> str | None:
    # A longer number is no code, and turning it into text may even fail.
    if type(code) is int and abs(code) < _CODE_LIMIT:
        return str(code)
    return as_word(code)
