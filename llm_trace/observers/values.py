"""Attribute values made safe: typed, bounded in bytes, and valid UTF-8, whatever came in."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

Value = str | bool | int | float | tuple[str, ...]

MAX_ITEMS: Final = 32
_INT64: Final = 2**63


def cut(text: str, limit: int) -> str:
    """`text` in at most `limit` UTF-8 bytes, cut between characters; lone surrogates become `?`."""
    if len(text) * 4 <= limit and text.isascii():
        return text
    return text.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")


def clean(value: object, limit: int) -> Value | None:
    """`value` as an attribute value, or None to leave the attribute out.

    Numbers of any library become int or float, sequences become tuples of text, the rest text.
    """
    if value is None or isinstance(value, bool):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return cut(str.__str__(value), limit)  # an enum's own text, not its member's name
    if isinstance(value, list | tuple | set | frozenset):
        return tuple(cut(str(item), limit) for item in list(value)[:MAX_ITEMS])
    return _number(value) if _is_number(value) else cut(str(value), limit)


def _is_number(value: object) -> bool:
    return hasattr(value, "__float__") or hasattr(value, "__index__")


def _number(value: object) -> Value | None:
    with suppress(TypeError, ValueError):  # arrays and tensors have the method and may refuse
        whole = operator.index(value)  # type: ignore[arg-type]
        return whole if -_INT64 <= whole < _INT64 else str(whole)
    with suppress(TypeError, ValueError, OverflowError):
        number = float(value)  # type: ignore[arg-type]
        return number if math.isfinite(number) else None
    return None


def clean_all(pairs: Iterable[tuple[str, object]], limit: int) -> dict[str, Value]:
    """The pairs that have a value, each made safe; a value whose own code raises is left out."""
    safe = {}
    for key, value in pairs:
        made = None
        with suppress(Exception):  # str() of a stranger's object may do anything
            made = clean(value, limit)
        if made is not None:
            safe[cut(key, limit)] = made
    return safe


def seconds(durations: Mapping[str, int], prefix: str) -> list[tuple[str, float]]:
    """Durations in ns as attributes in seconds, their names behind `prefix`."""
    return [(prefix + name, ns / 1e9) for name, ns in durations.items()]
