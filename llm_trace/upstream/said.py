"""What an engine's answer says of itself, taken over into the call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from llm_trace import semconv as s
from llm_trace.asgi.sse import StreamFacts
from llm_trace.asgi.sse.facts import METRICS
from llm_trace.core.engine_call import EngineCall
from llm_trace.core.inside import Inside
from llm_trace.core.usage import Usage

_QUEUE, _PREFILL, _DECODE = METRICS
_STREAMED: Final = {_QUEUE: s.QUEUE_WAIT, _PREFILL: s.PREFILL}
_WHOLE: Final = {**_STREAMED, _DECODE: s.DECODE}


def take(call: EngineCall, facts: StreamFacts, *, streamed: bool) -> None:
    """Take `facts` over: usage, why it ended, who answered, and vLLM's own times."""
    usage = facts.usage or Usage()
    call.usage(
        input_tokens=usage.input_tokens,
        cached_tokens=usage.cached_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=usage.reasoning_tokens,
    )
    if call.inside is None and facts.metrics and _PREFILL in facts.metrics:
        tell(call, _measured(facts.metrics, _STREAMED if streamed else _WHOLE))
    if facts.finish_reasons:
        call.finish_reason = facts.finish_reasons[0]
        call.attributes[s.RESPONSE_FINISH_REASONS] = tuple(facts.finish_reasons)
    call.attributes[s.RESPONSE_ID] = facts.response_id
    call.attributes[s.RESPONSE_MODEL] = facts.response_model


def _measured(metrics: Mapping[str, float], phases: Mapping[str, str]) -> Inside:
    """vLLM's own times: queue and prefill, and for an answer in one piece its decode.

    Its time to the first token begins when it was scheduled; what the server did before it queued
    the request is not among them.
    """
    ns = {phases[name]: int(ms * 1e6) for name, ms in metrics.items() if name in phases}
    return Inside(ns, whole=False)


def tell(call: EngineCall, inside: Inside) -> None:
    """The engine's own account of its time up to the first token or answer."""
    call.inside = inside
    show(call, inside.phases)


def show(call: EngineCall, phases: Mapping[str, int]) -> None:
    """Put the engine's phases, ns, on the call's span."""
    for phase, ns in phases.items():
        call.attributes[s.UPSTREAM_PREFIX + phase] = ns / 1e9
