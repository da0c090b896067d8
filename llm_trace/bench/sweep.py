"""The run itself: cold start, warm-up, then every cell, within the bounds of the plan."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from llm_trace.bench.counters import Counters, served_before
from llm_trace.bench.errors import BenchError
from llm_trace.bench.plan import Cell, Plan
from llm_trace.bench.prompts import Prompt, Prompts
from llm_trace.bench.rulers import find_ruler
from llm_trace.bench.sample import Sample
from llm_trace.bench.server import Server, seconds_left
from llm_trace.core.clock import SYSTEM

_ONE: Final = 1
"""Output tokens of a request that only fills the cache, or is counted."""

Tell = Callable[[str], None]


@dataclass(slots=True)
class Measured:
    """The requests of one cell, and what the server counted meanwhile."""

    cell: Cell
    samples: list[Sample]
    counted: Counters | None

    @property
    def seconds(self) -> float:
        """From the first sending to the last end."""
        begun = min(sample.started for sample in self.samples)
        return max(1, max(sample.ended for sample in self.samples) - begun) / 1e9


@dataclass(slots=True)
class Run:
    """Everything that was measured, raw."""

    plan: Plan
    ruler: str = ""
    """How the prompts' lengths are known: `exact`, `calibrated` or `estimated`."""
    served_before: bool | None = None
    """Whether the server had worked before the first request; None: it does not say."""
    first: Sample | None = None
    warm_up: list[Sample] = field(default_factory=list)
    measured: list[Measured] = field(default_factory=list)
    stopped: str | None = None
    """Why cells are missing; None when all were run."""


class Sweep:
    """Runs a plan against a server.

    Args:
        server: Whom to ask.
        plan: What, and how much at most.
        tell: Hears of progress.
    """

    def __init__(self, server: Server, plan: Plan, tell: Tell) -> None:
        self._server = server
        self._plan = plan
        self._tell = tell
        self._deadline = SYSTEM.monotonic_ns() + round(plan.max_seconds * 1e9)
        self._done = self._answered = 0
        self._start: Counters | None = None
        self.run = Run(plan)

    async def __call__(self) -> Run:
        """Run everything; what was measured so far stays in `run` whatever happens.

        Raises:
            BenchError: The first request already failed, or nothing was measured.
        """
        run = self.run
        self._start = await self._server.counters()
        run.served_before = served_before(self._start)
        run.first = await self._first()
        prompts = await self._rule()
        for length in self._plan.lengths:
            run.warm_up.append(await self._warm(prompts, length))
        try:
            await self._measure_all(prompts)
        except BenchError as fault:
            if not run.measured:
                raise
            run.stopped = str(fault)
        return run

    async def _first(self) -> Sample:
        sample = await self._ask("Count from one to ten in words, one a line.", "the first")
        if sample.outcome != "ok":
            said = " ".join(filter(None, (sample.reason, sample.said)))
            raise BenchError(f"the first request failed: {said}")
        return sample

    async def _rule(self) -> Prompts:
        async def probe(text: str) -> Sample:
            return await self._ask(text, "measures how long words are", _ONE)

        ruler = await find_ruler(self._server.client, self._server.target, probe)
        self.run.ruler = ruler.kind
        return Prompts(ruler)

    async def _warm(self, prompts: Prompts, length: int) -> Sample:
        """Let the server meet a length for the first time where nothing is measured."""
        prompt = await prompts.make(length)
        return await self._ask(prompt.text, f"warm-up, {length} tokens")

    # --- a cell -----------------------------------------------------------------------------------

    async def _measure_all(self, prompts: Prompts) -> None:
        for cell in self._plan.cells:
            if self._over():
                return
            self.run.measured.append(await self._measure(prompts, cell))

    async def _measure(self, prompts: Prompts, cell: Cell) -> Measured:
        """Run one cell; its prompts are made, and filled into the cache, before it begins."""
        texts = await self._texts(prompts, cell)
        await self._server.open(cell.concurrency)
        before = await self._server.settled(self._start, self._answered)
        samples = await self._load(cell, [prompt.text for prompt in texts])
        after = await self._server.settled(self._start, self._answered)
        counted = None if before is None or after is None else after.since(before)
        return Measured(cell, samples, counted)

    async def _texts(self, prompts: Prompts, cell: Cell) -> Sequence[Prompt]:
        """A prompt for each request; a cached cell has one a worker, which was sent before."""
        number = self._plan.size(cell)
        if cell.prefix == "new":
            return [await prompts.make(cell.length) for _ in range(number) if not self._over()]
        shared = [await prompts.make(cell.length) for _ in range(cell.concurrency)]
        for prompt in shared:
            await self._ask(prompt.text, f"fills the cache, {cell.length} tokens", _ONE)
        return [shared[at % cell.concurrency] for at in range(number)]

    async def _load(self, cell: Cell, texts: Sequence[str]) -> list[Sample]:
        """Keep `cell.concurrency` requests in flight until every text was sent."""
        queue = list(reversed(texts))
        samples: list[Sample] = []
        said = f"{cell.length} tokens, {cell.prefix}, {cell.concurrency} at once"

        async def work() -> None:
            while queue and not self._over():
                samples.append(await self._ask(queue.pop(), said))

        await asyncio.gather(*(work() for _ in range(cell.concurrency)))
        return samples

    async def _ask(self, text: str, said: str, max_tokens: int | None = None) -> Sample:
        sample = await self._server.ask(text, max_tokens or self._plan.max_tokens, self._patience())
        self._done += 1
        self._answered += sample.outcome == "ok"
        self._tell(f"{self._done} of {self._plan.total} requests: {said}")
        if sample.reason == "timeout" and self._over():
            sample.reason = "time bound"
        return sample

    # --- the bounds -------------------------------------------------------------------------------

    def _patience(self) -> float:
        return min(self._plan.timeout, seconds_left(self._deadline))

    def _over(self) -> bool:
        if seconds_left(self._deadline) > 0:
            return False
        self.run.stopped = f"--max-seconds {self._plan.max_seconds:g} was reached"
        return True
