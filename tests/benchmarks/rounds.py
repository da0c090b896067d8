"""Interleaved rounds: every contender in turn, again and again, so that drift hits all alike.

In each round a contender is compared with the bare app of the same round; what is kept is the
median of these differences. The collector runs as in production, but the objects of start-up are
frozen out of its sight first: they would be a cost of the benchmark.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from statistics import median
from typing import Final

from llm_trace.core.clock import SYSTEM
from tests.benchmarks import drive, stream
from tests.benchmarks.contenders import Contender
from tests.benchmarks.line import Line, fit

TOKENS: Final = (2, 66, 258, 1026)
"""Token chunks of the answers; four other events frame them."""
MIN_ROUNDS: Final = 5

_CELL_NS: Final = 6_000_000
_MAX_REQUESTS: Final = 200

Samples = dict[tuple[str, int], list[float]]


async def measure(contenders: Mapping[str, Contender], seconds: float) -> tuple[Samples, int]:
    """CPU ns of a request by contender and tokens, one sample a round; and the number of rounds."""
    servers = {tokens: drive.Server(stream.chunks(tokens)) for tokens in TOKENS}
    cells = [(key, tokens) for tokens in TOKENS for key in contenders]
    plan = {cell: await _requests(contenders[cell[0]], servers[cell[1]]) for cell in cells}
    samples: Samples = {cell: [] for cell in cells}
    gc.collect()
    gc.freeze()
    rounds, deadline = 0, SYSTEM.monotonic_ns() + seconds * 1e9
    while rounds < MIN_ROUNDS or SYSTEM.monotonic_ns() < deadline:
        for cell in cells:
            app, settle = contenders[cell[0]][:2]
            cost = await drive.cpu_ns(app, servers[cell[1]], plan[cell], settle)
            samples[cell].append(cost)
        rounds += 1
    gc.unfreeze()
    return samples, rounds


async def _requests(contender: Contender, server: drive.Server) -> int:
    """How many requests make one sample; trying it out also warms the contender up."""
    for requests in (1, 3):
        cost = await drive.cpu_ns(contender.app, server, requests, contender.settle)
    return max(1, min(_MAX_REQUESTS, round(_CELL_NS / cost)))


def added(samples: Samples, key: str, base: str = "bare") -> Line:
    """What `key` adds to `base`, ns: to each request, and to each of its token chunks."""
    differences = [
        median(a - b for a, b in zip(samples[key, n], samples[base, n], strict=True))
        for n in TOKENS
    ]
    # Samples take about as long as each other, so a sample's noise grows with what it measures.
    noise = [median(samples[key, n]) + median(samples[base, n]) for n in TOKENS]
    return fit(TOKENS, differences, noise)
