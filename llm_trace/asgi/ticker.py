"""A timer on every asyncio loop that serves requests; as late as it runs, the loop was blocked.

A bare timer handle and no task: nothing to cancel, nothing that a loop waits for at its end, and it
goes with the loop. Other loops than asyncio's have none, and their lag is unknown.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from contextvars import Context
from typing import Final

from llm_trace.core import faults
from llm_trace.core.clock import Clock
from llm_trace.core.loop_lag import LoopLag

INTERVAL: Final = 0.05
"""Seconds between ticks: a block that is shorter may pass between two of them."""

_INTERVAL_NS: Final = round(INTERVAL * 1e9)

Heard = Callable[[int], None]

_tickers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Ticker] = weakref.WeakKeyDictionary()


class _Here(threading.local):
    """The ticker of the loop that this thread ran last: a quick look where loops stay."""

    loop: Callable[[], asyncio.AbstractEventLoop | None] = staticmethod(lambda: None)
    lag: LoopLag | None = None


_here = _Here()


class Ticker:
    """The timer of one loop.

    Args:
        clock: Where time comes from.
        heard: Told how late each tick was, ns.
    """

    __slots__ = ("_clock", "_heard", "lag")

    def __init__(self, clock: Clock, heard: Heard) -> None:
        self._clock = clock
        self._heard = heard
        self.lag = LoopLag()

    def arm(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the timer; the loop is not kept, so that it can go."""
        self.lag.due = self._clock.monotonic_ns() + _INTERVAL_NS
        # In a context of its own: that of the first request would be kept as long as the loop.
        loop.call_later(INTERVAL, self._tick, context=Context())

    def _tick(self) -> None:
        try:
            self._heard(self.lag.ran(self._clock.monotonic_ns()))
        except Exception as error:  # noqa: BLE001 - rule 1: never hurt the host
            faults.contain("ticker", error)
        self.arm(asyncio.get_running_loop())


def lag_here(clock: Clock, heard: Heard | None) -> LoopLag | None:
    """The lag of the loop that runs here, from now on measured; None without a loop of asyncio's.

    Args:
        clock: Where time comes from.
        heard: Told how late each tick of this loop is, ns: the first who asks in a loop is the one.
            None: nobody wants to hear, and nothing is measured.
    """
    if heard is None:
        return None
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # trio's, or none
        return None
    if _here.loop() is not loop:
        try:
            _here.loop, _here.lag = weakref.ref(loop), _lag_of(loop, clock, heard)
        except TypeError:  # a loop that cannot be held weakly would never go
            return None
    return _here.lag


def _lag_of(loop: asyncio.AbstractEventLoop, clock: Clock, heard: Heard) -> LoopLag:
    ticker = _tickers.get(loop)
    if ticker is None:
        ticker = _tickers[loop] = Ticker(clock, heard)
        ticker.arm(loop)
    return ticker.lag
