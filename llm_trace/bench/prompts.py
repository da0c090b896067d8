"""Prompts of a wanted number of tokens, none of which begins as any other ever did.

Each starts with fresh random digits, so no block of it can be in a prefix cache, whoever ran what
before. The number of tokens is fitted by asking a `Ruler`; what was reached is told, never assumed.
"""

from __future__ import annotations

import random
import secrets
from dataclasses import dataclass
from typing import Final, Protocol

WORDS: Final = (
    *("the", "of", "and", "to", "in", "is", "that", "for", "it", "as", "was", "with", "be", "by"),
    *("on", "not", "he", "this", "are", "or", "his", "from", "at", "which", "but", "have", "an"),
    *("had", "they", "you", "were", "their", "one", "all", "we", "can", "her", "has", "there"),
    *("been", "if", "more", "when", "will", "would", "who", "so", "no", "time", "people", "way"),
    *("water", "word", "place", "number", "sound", "work", "part", "name", "line", "day", "man"),
)

_SHORT: Final = "a"
"""A word of one letter: the smallest step there is."""

_NEAR: Final = 4
"""Tokens from the aim from which on only short words are added."""

_TRIES: Final = 12


class Ruler(Protocol):
    """Knows how many prompt tokens the server makes of a text."""

    kind: str
    """How sure it is: `exact`, `calibrated` or `estimated`."""

    async def count(self, text: str) -> int:
        """Tokens of the whole prompt, its template included."""
        ...


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text and the tokens that the ruler gives it."""

    text: str
    tokens: int


class Prompts:
    """Makes prompts for one server.

    Args:
        ruler: Counts their tokens.
    """

    def __init__(self, ruler: Ruler) -> None:
        self._ruler = ruler
        self._per_word = 1.3
        """Tokens a word; learned from what was counted."""

    async def make(self, tokens: int) -> Prompt:
        """A new prompt of `tokens` tokens, or of the nearest number that words can reach."""
        salt = secrets.token_hex(8)
        pick = random.Random(salt)  # noqa: S311 - filler; only the salt has to be unlike others
        words: list[str] = []
        best = Prompt(salt, await self._ruler.count(salt))
        reached = best.tokens
        for _ in range(_TRIES):
            self._step(words, tokens - reached, pick)
            text = " ".join((salt, *words))
            reached = await self._ruler.count(text)
            best = min(best, Prompt(text, reached), key=lambda one: abs(one.tokens - tokens))
            if best.tokens == tokens:
                break
            self._learn(len(words), reached)
        return best

    def _step(self, words: list[str], missing: int, pick: random.Random) -> None:
        """Lengthen or shorten `words` by about so many tokens."""
        if 0 < missing <= _NEAR:
            words += [_SHORT] * missing
        elif missing > 0:
            words += pick.choices(WORDS, k=max(1, int(missing / self._per_word)))
        else:
            del words[len(words) - max(1, int(-missing / self._per_word)) :]

    def _learn(self, words: int, tokens: int) -> None:
        """Take the latest rate, within what words can be."""
        if words:
            self._per_word = min(8.0, max(0.5, tokens / words))
