"""Words of the command line that several commands understand; imports only what parsers need."""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Callable
from typing import Any, Final

from llm_trace.errors import LlmTraceError

_DIGITS: Final = 20
"""More than any number has that can be meant; a longer one need not be read to be refused."""
_SHOWN: Final = 60
"""Characters of a refused word that the error repeats."""


def whole(most: int, *, least: int = 1, use: str | None = None) -> Callable[[str], int]:
    """The type of an argument that is a whole number from `least` to `most`.

    Args:
        most: The largest.
        least: The smallest.
        use: What the error tells to use, where the two numbers do not say it.
    """
    advice = use or f"{least} to {most}"

    def number(text: str) -> int:
        digits = text.isascii() and text.isdigit() and len(text) <= _DIGITS
        if not digits or not least <= int(text) <= most:
            raise _refused(text, advice)
        return int(text)

    return number


def several(most: int) -> Callable[[str], tuple[int, ...]]:
    """The type of whole numbers from 1 to `most` with commas between: ascending, each once."""
    one = whole(most)

    def numbers(text: str) -> tuple[int, ...]:
        return tuple(sorted({one(part.strip()) for part in text.split(",")}))

    return numbers


def seconds(most: float, called: str) -> Callable[[str], float]:
    """The type of an argument in seconds, above 0 and up to `most`, which people call `called`."""

    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 < value <= most:
            raise _refused(text, f"seconds, up to {called}")
        return value

    return number


def json_object(such_as: str) -> Callable[[str], dict[str, Any]]:
    """The type of an argument that is a JSON object; the error shows `such_as`."""

    def value(text: str) -> dict[str, Any]:
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise argparse.ArgumentTypeError(
                f"{_shown(text)} is no JSON object: use one such as {such_as}"
            )
        return found

    return value


def header(text: str) -> tuple[str, str]:
    """The type of an argument that is a header; its value may be a secret, and is not shown."""
    name, colon, value = (part.strip() for part in text.partition(":"))
    if not (colon and name.replace("-", "").isalnum() and text.isascii() and value.isprintable()):
        raise argparse.ArgumentTypeError("a header cannot be used: write it as Name: value")
    return name.lower(), value


def bearer(option: str, variable: str | None) -> dict[str, str]:
    """The header that carries the key in the environment's `variable`; none where none is named.

    Raises:
        LlmTraceError: There is no key in it, or none that a header can carry.
    """
    if variable is None:
        return {}
    key = os.environ.get(variable, "").strip()
    if not key or not key.isascii() or not key.isprintable():
        raise LlmTraceError(
            f"{option} {variable}: the variable holds no key that can be sent: set it, or leave "
            f"{option} out."
        )
    return {"authorization": f"Bearer {key}"}


def _refused(text: str, advice: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f"{_shown(text)} cannot be used: use {advice}")


def _shown(text: str) -> str:
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}…"
