"""Which requests without output wait and which compute, as far as the engine's counts tell.

vLLM says nothing of a request before its first output. But after each step it says how many run and
how many wait, and a step's outputs show how many of those that run have tokens: the others that run
compute their prompts. A scheduler that is first come, first served takes requests in the order of
their hand-off, so those are the oldest without output. This is inferred, marked as such, and gives
way to the engine's own stamps; where the counts leave a doubt nothing is said.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from llm_trace.core.engine_call import EngineCall

_SWEEP_AT: Final = 256

DOUBTFUL: Final = 2
"""Reports that may count an aborted request: of the step in flight, and of one begun meanwhile."""


class Counts(NamedTuple):
    """What the engine reported after a step."""

    running: int
    """Requests in the batch."""
    waiting: int
    """Requests in the queue."""
    deferred: int
    """Requests that wait for something else, and may be overtaken."""
    emitted: int
    """Requests in the batch that this step brought tokens."""

    @property
    def total(self) -> int:
        """Requests that the scheduler has, gone ones of which it has not heard yet included."""
        return self.running + self.waiting + self.deferred

    @property
    def computing(self) -> int:
        """Requests in the batch without a token yet."""
        return self.running - self.emitted


class Departures:
    """Whether the engine may still count requests that are gone: it hears of aborts a step late."""

    __slots__ = ("_doubtful", "_expected")

    def __init__(self) -> None:
        self._expected = self._doubtful = 0

    def came(self) -> None:
        """A request was handed off."""
        self._expected += 1

    def ended(self) -> None:
        """The engine itself ended one."""
        self._expected -= 1

    def are_known(self, alive: int) -> bool:
        """After a step: whether the engine knows of all that left; `alive` requests did not."""
        gone = alive < self._expected
        self._doubtful = DOUBTFUL if gone else max(0, self._doubtful - 1)
        self._expected = alive
        return not self._doubtful


class Waiting:
    """Requests without output, in the order of their hand-off.

    Args:
        in_order: Whether the scheduler is first come, first served.
    """

    __slots__ = ("_handed_off", "_in_order", "_new")

    def __init__(self, *, in_order: bool) -> None:
        self._in_order = in_order
        self._handed_off: dict[str, EngineCall | None] = {}
        self._new: list[EngineCall] = []

    def add(self, request_id: str, call: EngineCall | None, alive: Collection[str]) -> None:
        """A request was handed off; None for one of nobody's. `alive` were not aborted."""
        if len(self._handed_off) > _SWEEP_AT + 2 * len(alive):
            self._handed_off = {k: c for k, c in self._handed_off.items() if k in alive}
            self._new = [call for call in self._new if not call.timeline.closed]
        self._handed_off[request_id] = call
        if call is not None:
            self._new.append(call)

    def leave(self, request_id: str) -> bool:
        """An output of it is here; whether it is the first."""
        found = request_id in self._handed_off
        if found:
            del self._handed_off[request_id]
        return found

    def observe(self, counts: Counts, alive: Collection[str], *, before: int, at: int) -> None:
        """A step is over.

        Args:
            counts: What the engine reported after it.
            alive: The requests that were not aborted.
            before: The end of the step before it, monotonic ns.
            at: A time, in ns, at which this step was surely not over yet or just over.
        """
        queue = counts.waiting + counts.deferred
        if counts.computing and queue and (counts.deferred or not self._in_order):
            return  # some compute and some wait: nobody can say who
        self._schedule(counts.computing, alive, before)
        self._new = [call for call in self._new if not _settled(call, at)]

    def _schedule(self, number: int, alive: Collection[str], before: int) -> None:
        """The oldest requests compute."""
        gone = []
        for request_id, call in self._handed_off.items():
            if request_id not in alive:
                gone.append(request_id)
            elif number <= 0:
                break
            else:
                number -= 1
                if call is not None and not call.seen_scheduled:
                    call.seen_scheduled = max(before, call.handed_off, call.seen_waiting)
        for request_id in gone:
            del self._handed_off[request_id]


def _settled(call: EngineCall, at: int) -> bool:
    """Whether `call` need not be looked at again. One that was there and did not run waited."""
    if call.timeline.closed or call.first_token or call.seen_scheduled:
        return True
    if call.handed_off >= at:
        return False
    call.seen_waiting = at
    return True
