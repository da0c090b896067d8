"""Addresses that a command is told to ask: taken apart, and never repeated with a password."""

from __future__ import annotations

from typing import Final
from urllib.parse import SplitResult, urlsplit

from llm_trace.errors import LlmTraceError
from llm_trace.observers.endpoint import without_credentials

_SCHEMES: Final = frozenset({"http", "https"})


def is_http(text: str) -> bool:
    """Whether `text` is a URL of http or https."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in _SCHEMES and bool(parts.hostname)


def http_url(text: str, *, such_as: str, key_option: str | None = None) -> SplitResult:
    """Take a URL of http or https apart.

    Args:
        text: What the user gave.
        such_as: One that could be used, for the error.
        key_option: The option for a key, as none belongs into a URL; None where there is none.

    Raises:
        LlmTraceError: It cannot be used; the message says why.
    """
    shown = repr(without_credentials(text))
    if not text.isprintable() or " " in text:
        raise LlmTraceError(
            f"{shown} is no URL: it holds blanks or control characters; escape them."
        )
    if not is_http(text):
        raise LlmTraceError(f"{shown} is no URL: use one such as {such_as}.")
    parts = urlsplit(text)
    if parts.username or parts.password:
        instead = f"name a variable with {key_option}" if key_option else "leave them out"
        raise LlmTraceError(f"the URL holds a user or password: {instead}.")
    try:
        if parts.port != 0:
            return parts
    except ValueError:
        pass
    raise LlmTraceError(f"{shown} is no URL: use a port from 1 to 65535.")
