"""The one clock: monotonic nanoseconds for differences, wall nanoseconds for one anchor.

Everything else takes a `Clock`, so that tests can drive time and no difference is ever taken
between two clocks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple


class Clock(NamedTuple):
    """Two ways to ask for the time, both in integer nanoseconds."""

    monotonic_ns: Callable[[], int]
    """CLOCK_MONOTONIC: comparable between processes of one host, as vLLM's stamps are."""
    wall_ns: Callable[[], int]
    """Unix time; read once a request, to place its monotonic stamps on the calendar."""


SYSTEM: Final = Clock(time.monotonic_ns, time.time_ns)
