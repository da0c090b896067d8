"""A user's name made into one that only the holder of a key can make again."""

from __future__ import annotations

import hmac
from typing import Final

LENGTH: Final = 32
"""Hex digits: 128 bits, of which two are as good as never alike."""


def pseudonym(identifier: str, key: str) -> str:
    """The keyed hash (HMAC-SHA256) of `identifier`; without the key it cannot be tried out."""
    named = identifier.encode("utf-8", "surrogatepass")
    return hmac.new(key.encode("utf-8", "surrogatepass"), named, "sha256").hexdigest()[:LENGTH]
