"""How much an engine tells, from most to least; the root span says which.

Where nothing of the engine is joined there is no tier, and its time is called `unattributed`.
"""

from __future__ import annotations

from typing import Any, Final, Literal

Tier = Literal["engine-events", "stats-sweep", "finished-stats"]

ENGINE_EVENTS: Final = "engine-events"
"""Stamps of every event and token of the engine core, joined by the internal request id."""
STATS_SWEEP: Final = "stats-sweep"
"""The engine core's stamps, read from its live request states after each step."""
FINISHED_STATS: Final = "finished-stats"
"""Durations of finished requests, placed back from the moment at which they were reported."""

_METHODS: Final = ("add_request", "process_outputs")


def tier_of(processor: Any, *, events: bool = True) -> Tier:
    """The best tier that an output processor allows; `events` false leaves the wraps out."""
    if processor is None:
        return FINISHED_STATS
    if events and all(callable(getattr(processor, name, None)) for name in _METHODS):
        return ENGINE_EVENTS
    if hasattr(processor, "request_states"):
        return STATS_SWEEP
    return FINISHED_STATS
