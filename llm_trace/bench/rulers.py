"""Ways to know how many prompt tokens a text makes: the server's tokenizer, else its usage."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import httpx

from llm_trace.bench.errors import BenchError

if TYPE_CHECKING:
    from llm_trace.bench.prompts import Ruler
    from llm_trace.bench.sample import Sample
    from llm_trace.bench.target import Target

_OK: Final = 200
_PROBES: Final = (40, 240)
"""Words of the two prompts that calibration sends."""
_USUAL: Final = 1.3
"""Tokens a word of English, for a server that tells nothing."""


class Tokenizer:
    """vLLM's `/tokenize`: exact, and it sees the chat template, too."""

    kind = "exact"

    def __init__(self, client: httpx.AsyncClient, target: Target) -> None:
        self._client = client
        self._target = target

    async def count(self, text: str) -> int:
        """Ask the server.

        Raises:
            BenchError: It did not answer, or has no tokenizer to ask.
        """
        target = self._target
        asked = {"model": target.model, **target.content(text)}
        url, headers = f"{target.root}/tokenize", dict(target.headers)
        try:
            answer = await self._client.post(url, json=asked, headers=headers)
            document = answer.json() if answer.status_code == _OK else None
        except (httpx.HTTPError, ValueError, RecursionError):
            document = None
        count = document.get("count") if isinstance(document, dict) else None
        if type(count) is not int or count < 0:
            raise BenchError("the server's tokenizer does not answer any more")
        return count


class Line:
    """Tokens as a straight line over words, fitted to what the server counted."""

    def __init__(self, kind: str, per_word: float, more: float) -> None:
        self.kind = kind
        self._per_word = per_word
        self._more = more

    async def count(self, text: str) -> int:
        """What the line says."""
        return round(self._more + self._per_word * len(text.split()))


async def find_ruler(
    client: httpx.AsyncClient, target: Target, probe: Callable[[str], Awaitable[Sample]]
) -> Ruler:
    """The best ruler that the server offers.

    Args:
        client: The pool of connections.
        target: The server.
        probe: Sends one short request with a prompt.
    """
    tokenizer = Tokenizer(client, target)
    try:
        await tokenizer.count("one two three")
    except BenchError:
        return await calibrate(probe)
    return tokenizer


async def calibrate(probe: Callable[[str], Awaitable[Sample]]) -> Line:
    """A line through two prompts' own usage; the usual rate where the server counts nothing."""
    counts = []
    for words in _PROBES:
        text = " ".join((secrets.token_hex(8), *["the", "water", "number", "and"] * (words // 4)))
        counts.append((len(text.split()), (await probe(text)).prompt_tokens))
    (few, low), (many, high) = counts
    if low is None or high is None or high <= low:
        return Line("estimated", _USUAL, 0)
    per_word = (high - low) / (many - few)
    return Line("calibrated", per_word, low - per_word * few)
