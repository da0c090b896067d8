"""How many tokens a request read and wrote; what nobody counted is None, never 0."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

MAX_TOKENS: Final = 2**53
"""Above it a count is no count: backends read JSON numbers, and Prometheus all, as doubles, which
are exact up to here. A thousand of them still add up to what OTLP's 64 bits hold."""


class Usage(NamedTuple):
    """Token counts of one engine call or one answer."""

    input_tokens: int | None = None
    """Prompt tokens, cached ones included."""
    output_tokens: int | None = None
    cached_tokens: int | None = None
    """Prompt tokens read from the prefix cache."""
    reasoning_tokens: int | None = None

    def overlaid(self, other: Usage) -> Usage:
        """This usage with the counts that `other` knows put over it."""
        if other == _NOTHING:
            return self
        if self == _NOTHING:
            return other
        return Usage(*(b if b is not None else a for a, b in zip(self, other, strict=True)))


_NOTHING: Final = Usage()


def count(value: object) -> int | None:
    """`value` as a token count, or None: booleans, negatives, NaN and text are missing.

    A whole float is a count: some engines and proxies have only one kind of number.
    """
    if type(value) is int:  # nearly always
        return value if 0 <= value <= MAX_TOKENS else None
    if value is None or isinstance(value, bool | str | bytes):  # long text is slow to read
        return None
    try:
        number = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 <= number <= MAX_TOKENS and number == value else None


def total(usages: Iterable[Usage]) -> Usage:
    """The sum, field by field, of what is known."""
    known = [usage for usage in usages if usage != _NOTHING]
    if len(known) <= 1:  # nearly always there is one call
        return known[0] if known else _NOTHING
    columns = zip(*known, strict=True)
    return Usage(*(_sum_known(column) for column in columns))


def _sum_known(column: Iterable[int | None]) -> int | None:
    known = [number for number in column if number is not None]
    return sum(known) if known else None
