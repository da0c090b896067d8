"""The lower tiers: what can be joined when the wraps cannot be used.

Both find the HTTP request by the id that vLLM's handlers leave in the scope's state, after each
step of the engine. They see less: no hand-off, and no request whose first output is also its last.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from llm_trace import semconv as s
from llm_trace.core import engines
from llm_trace.core.engine_call import EngineCall
from llm_trace.core.timeline import Timeline
from llm_trace_vllm.clock import to_ns
from llm_trace_vllm.tiers import FINISHED_STATS, STATS_SWEEP

_STAMPS = (
    ("queued", "queued_ts"),
    ("scheduled", "scheduled_ts"),
    ("first_token", "first_token_ts"),
    ("last_token", "last_token_ts"),
)


def sweep(processor: Any) -> None:
    """Copy the stamps of every live request state to the HTTP request that waits for it."""
    waiting = _waiting()
    for state in tuple(processor.request_states.values()):
        timeline = waiting.get(_key(getattr(state, "external_req_id", None) or state.request_id))
        stats = getattr(state, "stats", None)
        if timeline is None or stats is None:
            continue
        call = _call(timeline, state.request_id, STATS_SWEEP)
        for moment, name in _STAMPS:
            at = to_ns(getattr(stats, name, None))
            if at:
                call.mark(moment, at)  # type: ignore[arg-type]


def finished(requests: Iterable[Any], now: int) -> None:
    """Place the durations of `requests`, just finished, back from `now` (monotonic ns)."""
    waiting = _waiting()
    for stats in requests:
        timeline = waiting.get(_key(getattr(stats, "request_id", None)))
        if timeline is None or timeline.calls:
            continue
        call = _call(timeline, str(stats.request_id), FINISHED_STATS)
        at = now
        for moment, name in (
            ("last_token", None),
            ("first_token", "decode_time"),
            ("scheduled", "prefill_time"),
            ("queued", "queued_time"),
        ):
            at -= to_ns(getattr(stats, name, None)) if name else 0
            call.mark(moment, at)  # type: ignore[arg-type]
        call.usage(
            input_tokens=getattr(stats, "num_prompt_tokens", None),
            cached_tokens=getattr(stats, "num_cached_tokens", None),
            output_tokens=getattr(stats, "num_generation_tokens", None),
        )


def _waiting() -> dict[str, Timeline]:
    """Live HTTP requests by the id that their handler gave the engine."""
    found = {}
    for timeline in engines.live_requests():
        metadata = timeline.state.get("request_metadata")
        key = _key(getattr(metadata, "request_id", None))
        if key:
            found[key] = timeline
    return found


def _key(request_id: object) -> str:
    """The part of an id that routes agree on: completions add the index of the prompt."""
    text = str(request_id or "")
    stem, _, last = text.rpartition("-")
    return stem if text.startswith("cmpl-") and last.isdigit() else text


def _call(timeline: Timeline, request_id: str, tier: str) -> EngineCall:
    for call in timeline.calls:
        if call.attributes.get(s.ENGINE_REQUEST_ID) == request_id:
            return call
    call = EngineCall(timeline, "", "", source="engine")
    call.attributes[s.ENGINE_TIER] = tier
    call.attributes[s.ENGINE_REQUEST_ID] = request_id
    timeline.adopt_call(call)
    return call
