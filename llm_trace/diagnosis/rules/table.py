"""Which rules are asked of which phase, in what order; the first that holds makes the verdict.

From the most telling fact to the least: what names a cause outside the phase stands first, because
it makes the phase's own numbers long too; then what was counted; then what only fits. The last rule
of each list needs nothing but the phase itself, so that every case has a verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from llm_trace import semconv as s
from llm_trace.diagnosis.rules import (
    app,
    decode,
    delivery,
    engine,
    event_loop,
    network,
    prefill,
    queue,
)
from llm_trace.diagnosis.rules.rule import Rule

EDGE: Final = network.EDGE
"""Asked before all: its time lies outside the ledger."""

_QUEUE: Final = (
    queue.BLOCKED_BEFORE_ENGINE,  # before the engine had it, what ran inside explains nothing
    queue.BEFORE_ENGINE,
    queue.ALL_SLOTS_TAKEN,  # before the cache: with every slot taken room would not help
    queue.CACHE_FULL,
    queue.ROOM_FOR_MORE,  # neither, and both were known
    queue.OTHERS_RAN,  # the number of slots is not known
    queue.QUEUED,
)

_PREFILL: Final = (
    engine.COLD,  # these two say why its numbers are no measure of the prompt
    engine.PREEMPTED,
    prefill.UNDER_FLOOR,  # a floor that cannot be true must not judge below
    prefill.CACHE_OFF,
    prefill.CONTENDED,  # before its distance from the floor, which others lengthen
    prefill.NEAR_FLOOR,
    prefill.FAR_FROM_FLOOR,
    prefill.FEW_TOKENS,  # from here on no floor is known
    prefill.COUNTED,
    prefill.UNCOUNTED,
)

_DECODE: Final = (
    engine.PREEMPTED,
    delivery.HELD_IN_DECODE,  # a client that reads slowly slows the pace that is measured below
    decode.STALLED_BY_PREFILL,
    decode.STALLED,
    delivery.LATE_TAIL,
    decode.NEAR_FLOOR,
    decode.FAR_FROM_FLOOR,
    decode.LONG_ANSWER,
)

_DELIVERY: Final = (event_loop.BLOCKED, delivery.HELD, delivery.HANDED_OVER)

RULES: Final[Mapping[str, tuple[Rule, ...]]] = {
    s.ADMISSION: (event_loop.BLOCKED, app.ADMISSION),
    s.RETRIEVAL: (app.RETRIEVAL,),
    s.MODEL_LOAD: (engine.LOADING,),
    s.PREPARE: (event_loop.BLOCKED, app.PREPARE),
    s.GENERATION: (app.GENERATION,),
    s.NETWORK: (network.NETWORK,),
    s.QUEUE_WAIT: _QUEUE,
    s.PREFILL: _PREFILL,
    s.ENGINE: (engine.COLD, engine.NO_SPLIT),
    s.UNATTRIBUTED: (event_loop.BLOCKED, engine.NO_SPLIT),
    s.FIRST_TOKEN: _DELIVERY,
    s.DECODE: _DECODE,
    s.FINISH: (delivery.HELD_IN_DECODE, delivery.LATE_TAIL, *_DELIVERY),
}

APP_PHASE: Final = (app.NAMED,)
"""For phases that the app named itself."""
