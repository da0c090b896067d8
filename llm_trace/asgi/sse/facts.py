"""What a token stream said about itself: the bits, the usage and the words worth keeping.

Every value here comes from a response body, so it is hostile until checked: strings are capped
and made encodable, numbers are counts or nothing. This module knows no dialect and no framing.
"""

from __future__ import annotations

from typing import Final

from llm_trace.core.usage import Usage

__all__ = ["Seen", "StreamFacts", "Usage", "as_dict", "as_list", "as_word"]

WORD_LIMIT: Final = 64
NAME_LIMIT: Final = 256
REASONS_LIMIT: Final = 16

_MS_LIMIT: Final = 1e9
METRICS: Final = ("queue_time_ms", "time_to_first_token_ms", "generation_time_ms")
"""What is kept of vLLM's per-request metrics."""


class Seen:
    """Bits that `TokenDetector.feed` returns; plain ints, as IntFlag costs too much a chunk."""

    TOKEN = 1
    """Generated content of any kind: text, reasoning, refusal, tool-call or audio delta."""
    ANSWER = 2
    """A token that is not reasoning; always together with TOKEN."""
    REASONING = 4
    """A reasoning token; always together with TOKEN."""
    TOOL_CALL = 8
    """A part of a tool call; always together with TOKEN and ANSWER."""
    ROLE = 16
    """A role-only or empty delta, or an event that opens a response or one of its parts."""
    USAGE = 32
    """Token counts."""
    FINISH = 64
    """The reason why generation stopped."""
    ERROR = 128
    """An error in place of content."""
    END = 256
    """The terminator: [DONE], message_stop, response.completed, "done": true."""
    COMMENT = 512
    """A comment, ping or keep-alive."""
    CHUNK = TOKEN | ROLE | USAGE | FINISH | ERROR
    """Any part of the answer itself; what is left are comments and the terminator."""


_BEGUN: Final = Seen.TOKEN | Seen.ROLE
_ENDED: Final = Seen.FINISH | Seen.END | Seen.ERROR


def is_unfinished(seen: int) -> bool:
    """Whether an answer began, and its stream ended without its end.

    Args:
        seen: All bits of `Seen` in the stream. A terminator ends what had tokens; where only an
            answer's opening came before it, the server was told to stop while it had the request
            in its queue, as vLLM is.
    """
    if not seen & _BEGUN:
        return False
    ended = seen & _ENDED
    return not ended or (ended == Seen.END and not seen & Seen.TOKEN)


class StreamFacts:
    """What is known of one stream; bounded, written by its detector, and whole once that is closed.

    Attributes:
        usage: Token counts; the last non-null value of each wins.
        finish_reasons: The first 16 reasons, in order, at most 64 characters each.
        error_type: Type or code of the first error, at most 64 characters; never its message.
        error_status: The HTTP status that the first error gives as its code, if it gives one.
        response_id: The first id seen, at most 256 characters.
        response_model: The first model name seen, at most 256 characters.
        token_events: Events that carried a token, whatever the number of choices in them.
        metrics: Milliseconds by name, as vLLM reports them with `--enable-per-request-metrics`.
        malformed: Events that claimed data and could not be understood.
    """

    __slots__ = (
        "error_status",
        "error_type",
        "finish_reasons",
        "malformed",
        "metrics",
        "response_id",
        "response_model",
        "token_events",
        "usage",
    )

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self.finish_reasons: list[str] = []
        self.error_type: str | None = None
        self.error_status: int | None = None
        self.response_id: str | None = None
        self.response_model: str | None = None
        self.metrics: dict[str, float] | None = None
        self.token_events = 0
        self.malformed = 0

    def told(self) -> tuple[object, ...]:
        """What events have said by now, but for what is the same in all or is listed apart."""
        return tuple(getattr(self, name) for name in _TOLD)

    def add_usage(self, usage: Usage) -> None:
        """Take over every count that `usage` has."""
        self.usage = usage if self.usage is None else self.usage.overlaid(usage)

    def add_reason(self, reason: str) -> None:
        """Append a finish reason while there is room."""
        if len(self.finish_reasons) < REASONS_LIMIT:
            self.finish_reasons.append(reason)

    def identify(self, source: dict[str, object]) -> None:
        """Take id and model from `source` where none is known yet."""
        if self.response_id is None:
            self.response_id = as_word(source.get("id"), NAME_LIMIT)
        if self.response_model is None:
            self.response_model = as_word(source.get("model"), NAME_LIMIT)

    def name(self, response_id: bytes, response_model: bytes) -> None:
        """Take id and model, plain ASCII words, where none is known yet."""
        if self.response_id is None or self.response_model is None:
            self.response_id = self.response_id or response_id.decode()
            self.response_model = self.response_model or response_model.decode()


_TOLD: Final = tuple(
    {*StreamFacts.__slots__}
    - {"finish_reasons", "response_id", "response_model", "token_events", "malformed"}
)


def as_word(value: object, limit: int = WORD_LIMIT) -> str | None:
    """Return a non-empty string cut to `limit` characters, anything else as None."""
    if type(value) is not str or not value:
        return None
    # JSON can spell lone surrogates, which no exporter can encode.
    return value[:limit].encode("utf-8", "replace").decode()


def as_ms(value: object) -> float | None:
    """Return a plausible duration in milliseconds, anything else as None."""
    if type(value) not in (int, float) or not 0 <= value < _MS_LIMIT:  # type: ignore[operator]
        return None
    return float(value)  # type: ignore[arg-type]


def as_dict(value: object) -> dict[str, object]:
    """Return a JSON object, anything else as an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[object]:
    """Return a JSON array, anything else as an empty one."""
    return value if isinstance(value, list) else []
