"""The kinds of value that settings take: how each is read from text, what fits, and the advice."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

TRUE: Final = frozenset({"1", "true", "yes", "on"})
FALSE: Final = frozenset({"0", "false", "no", "off"})

_LONE: Final = re.compile("[\ud800-\udfff]")
"""Surrogates: what Python makes of bytes that it cannot decode, and what no exporter can encode."""


def _as_it_is(value: Any) -> Any:
    return value


class Kind(NamedTuple):
    """What a setting's value must be."""

    read: Callable[[str], Any]
    """The value that a variable's text means; raises ValueError with advice."""
    fits: Callable[[Any], bool]
    """Whether a value, of whatever type, can be used."""
    advice: str
    """What to do where it cannot."""
    own: Callable[[Any], Any] = _as_it_is
    """A copy of the value that its giver cannot change."""


# --- from text --------------------------------------------------------------------------------


def _boolean(text: str) -> bool:
    if text.lower() in TRUE:
        return True
    if text.lower() in FALSE:
        return False
    raise ValueError("use true or false")


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("use a whole number") from None


def _decimal(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("use a number") from None


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _routes(text: str) -> Mapping[str, str]:
    routes = {}
    for pair in _names(text):
        path, found, operation = pair.partition("=")
        if not found:
            raise ValueError("use path=operation, such as /ask=chat, separated by commas")
        routes[path.strip()] = operation.strip()
    return routes


# --- what fits --------------------------------------------------------------------------------


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_name(value: object) -> bool:
    """Text that can be a label: bytes that are no UTF-8 in a variable break the page of metrics."""
    return _is_text(value) and not _LONE.search(str(value))


def _are_names(value: object) -> bool:
    return isinstance(value, tuple | list) and all(map(_is_name, value))


def _are_urls(value: Any) -> bool:
    return _are_names(value) and all(
        pattern.startswith(("/", "*")) or "://" in pattern for pattern in value
    )


def _is_path(value: object) -> bool:
    return isinstance(value, str) and value.startswith("/")


def _are_routes(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        _is_path(path) and _is_name(operation) for path, operation in value.items()
    )


# --- the kinds --------------------------------------------------------------------------------

BOOLEAN: Final = Kind(_boolean, lambda v: isinstance(v, bool), "use true or false")

ROUTES: Final = Kind(
    _routes,
    _are_routes,
    "each route needs a path that begins with / and an operation, such as /ask=chat",
    dict,
)

URL_PATTERNS: Final = Kind(
    _names,
    _are_urls,
    "each pattern begins with / for a path, or with a scheme, such as http://vllm:8000/*",
    tuple,
)


def text(advice: str, *, least: int = 1) -> Kind:
    """Text that is not blank, of at least so many characters."""
    return Kind(str, lambda v: _is_text(v) and len(v) >= least, advice)


def name(advice: str) -> Kind:
    """Text that is not blank, and that labels and attributes may hold."""
    return Kind(str, _is_name, advice)


def word(advice: str, *known: str) -> Kind:
    """One of the known words."""
    return Kind(str, lambda v: isinstance(v, str) and v in known, advice)


def names(advice: str) -> Kind:
    """A list of texts, in a variable separated by commas."""
    return Kind(_names, _are_names, advice, tuple)


def path(advice: str) -> Kind:
    """The path of a page."""
    return Kind(str, _is_path, advice)


def integer(advice: str, *, least: int, most: float = math.inf) -> Kind:
    """A whole number within bounds, both included."""

    def fits(value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most

    return Kind(_integer, fits, advice)


def number(advice: str, *, most: float) -> Kind:
    """A number above 0, up to `most`."""

    def fits(value: object) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= most

    return Kind(_decimal, fits, advice)


def or_none(kind: Kind) -> Kind:
    """`kind`, or None, which no variable can say."""
    return kind._replace(fits=lambda v: v is None or kind.fits(v))


def or_empty(kind: Kind) -> Kind:
    """`kind`, or empty text."""
    return kind._replace(fits=lambda v: v == "" or kind.fits(v))


def or_zero(kind: Kind) -> Kind:
    """`kind`, or 0."""
    return kind._replace(fits=lambda v: kind.fits(v) or (v == 0 and not isinstance(v, bool)))
