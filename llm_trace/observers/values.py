"""Attribute values made safe: typed, bounded in bytes, and valid UTF-8, whatever came in."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from llm_trace import semconv as s

Value = str | bool | int | float | tuple[str, ...] | tuple[int, ...] | tuple[float, ...]

MAX_ITEMS: Final = 32
_INT64: Final = 2**63
_OURS: Final = frozenset(name for name in vars(s).values() if isinstance(name, str))
"""Names of semconv: safe keys as they are."""
_SEQUENCES: Final = (list, tuple, set, frozenset)  # a union would be made anew at every call


def cut(text: str, limit: int) -> str:
    """`text` in at most `limit` UTF-8 bytes, cut between characters; lone surrogates become `?`."""
    if len(text) * 4 <= limit and text.isascii():
        return text
    return text.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")


def clean(value: object, limit: int) -> Value | None:
    """`value` as an attribute value, or None to leave the attribute out.

    Numbers of any library become int or float, sequences become tuples of text, the rest text.
    """
    kind = type(value)
    if kind is str:  # the usual kinds first: this runs for every attribute of every span
        return cut(value, limit)  # type: ignore[arg-type]
    if kind is float:
        return value if math.isfinite(value) else None  # type: ignore[arg-type, return-value]
    if value is None or kind is bool:
        return value  # type: ignore[return-value]
    if kind is int and -_INT64 <= value < _INT64:  # type: ignore[operator]
        return value  # type: ignore[return-value]
    return _clean_rare(value, limit)


def _clean_rare(value: object, limit: int) -> Value | None:
    if isinstance(value, str):
        return cut(str.__str__(value), limit)  # an enum's own text, not its member's name
    if isinstance(value, _SEQUENCES):
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
        made = None if value is None else _try_clean(value, limit)
        if made is not None:
            safe[key if key in _OURS else cut(key, limit)] = made
    return safe


def _try_clean(value: object, limit: int) -> Value | None:
    # No `suppress`: it costs more than all the rest, for each attribute of each span.
    try:
        return clean(value, limit)
    except Exception:  # noqa: BLE001 - str() of a stranger's object may do anything
        return None


def seconds(durations: Mapping[str, int], prefix: str) -> list[tuple[str, float]]:
    """Durations in ns as attributes in seconds, their names behind `prefix`."""
    return [(prefix + name, ns / 1e9) for name, ns in durations.items()]
