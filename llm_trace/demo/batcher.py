"""A small model of an engine's scheduler: FIFO slots, one device, a prefix cache, decode steps.

It times like an engine and computes nothing. Knows no HTTP and no telemetry: it yields events.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

BLOCK: Final = 32
"""Tokens of a prefix-cache block."""

Event = Literal["scheduled", "token"]


class Pace(NamedTuple):
    """How fast the simulated device works, in seconds; near what a tiny model does on a CPU."""

    per_prompt_token: float = 60e-6
    per_step: float = 0.008


@dataclass(slots=True)
class Work:
    """One request in the engine."""

    prompt: Sequence[int]
    max_tokens: int
    cached_tokens: int = 0


@dataclass(slots=True)
class Batcher:
    """Slots for `slots` requests at once; the others wait in order of arrival."""

    slots: int = 4
    pace: Pace = field(default_factory=Pace)
    cache_blocks: int = 8192
    _free: asyncio.Semaphore = field(init=False)
    _device: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)
    _cache: OrderedDict[int, None] = field(init=False, default_factory=OrderedDict)

    def __post_init__(self) -> None:
        self._free = asyncio.Semaphore(self.slots)

    async def run(self, work: Work) -> AsyncGenerator[Event, None]:
        """Yield "scheduled" when the request gets a slot, then "token" for each token."""
        async with self._free, aclosing(self._generate(work)) as events:
            async for event in events:
                yield event

    async def _generate(self, work: Work) -> AsyncGenerator[Event, None]:
        yield "scheduled"
        work.cached_tokens = self._look_up(work.prompt)
        async with self._device:  # prefills of several requests share one device
            computed = len(work.prompt) - work.cached_tokens
            await asyncio.sleep(computed * self.pace.per_prompt_token)
        self._remember(work.prompt)
        for step in range(work.max_tokens):
            await asyncio.sleep(self.pace.per_step if step else 0)
            yield "token"

    def _look_up(self, prompt: Sequence[int]) -> int:
        """Count the tokens of the leading blocks that are cached; the last token never is."""
        cached = takewhile(self._cache.__contains__, _blocks(prompt[:-1]))
        return BLOCK * sum(1 for _ in cached)

    def _remember(self, prompt: Sequence[int]) -> None:
        for key in _blocks(prompt):
            self._cache[key] = None
            self._cache.move_to_end(key)
        while len(self._cache) > self.cache_blocks:
            self._cache.popitem(last=False)


def _blocks(prompt: Sequence[int]) -> list[int]:
    """Name each whole block by all the tokens up to its end."""
    keys: list[int] = []
    for end in range(BLOCK, len(prompt) + 1, BLOCK):
        before = keys[-1] if keys else 0
        keys.append(hash((before, *prompt[end - BLOCK : end])))
    return keys
