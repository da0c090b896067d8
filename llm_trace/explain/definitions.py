"""The same request under every common definition of its two numbers.

Tools call different stretches by the same name, which is why two of them disagree about one server.
Each row says from where to where its tool measures; what a trace cannot tell is None, with the
reason. A client's numbers lie above those given here by the network, which no server can see.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from llm_trace import semconv as s
from llm_trace.explain.story import BY_VLLM, Story


class Definition(NamedTuple):
    """One tool's definition."""

    tool: str
    measures: str
    value: Callable[[Story], int | float | None]
    """ns, or None where the trace does not tell."""
    on_top: str | None = None
    """What the tool's own number has beside."""


NET: Final = "network"


def _ttft(story: Story) -> int | None:
    """What left the server; vLLM's own span knows nothing of that."""
    return None if story.told_by == BY_VLLM else story.ttft


def _histogram(story: Story) -> int | None:
    """vLLM's own number where its span is there; else from the hand-off, what is surely in it."""
    if story.native is not None:
        return story.native.nanoseconds(s.LATENCY_TTFT)
    queue, prefill = (story.ttft_phases.get(x) for x in (s.QUEUE_WAIT, s.PREFILL))
    return None if prefill is None else (queue or 0) + prefill


def _prefill(story: Story) -> int | None:
    return story.engine.get(s.LATENCY_PREFILL) or story.ttft_phases.get(s.PREFILL)


def _first_byte(story: Story) -> int | None:
    return story.root.nanoseconds(s.RESPONSE_TIME_TO_FIRST_CHUNK)


def _gaps(story: Story) -> int | None:
    tokens = story.output_tokens
    return tokens - 1 if tokens is not None and tokens > 1 else None


def _decode(story: Story) -> float | None:
    """From the first visible token to the last, over the gaps."""
    gaps, decode = _gaps(story), story.phases.get(s.DECODE)
    if gaps is None or decode is None or story.told_by == BY_VLLM:
        return None
    return decode / gaps


def _engine_decode(story: Story) -> float | None:
    gaps, decode = _gaps(story), story.engine.get(s.LATENCY_DECODE)
    return None if gaps is None or decode is None else decode / gaps


def _until_end(story: Story) -> float | None:
    gaps, ttft = _gaps(story), _ttft(story)
    return None if gaps is None or ttft is None else (story.root.duration - ttft) / gaps


def _with_first(story: Story) -> float | None:
    ttft, decode = _ttft(story), story.phases.get(s.DECODE)
    if ttft is None or decode is None or not story.output_tokens:
        return None
    return (ttft + decode) / story.output_tokens


TTFT: Final = (
    Definition("llm_trace", "request received to first token sent", _ttft),
    Definition("vLLM histogram", "API server's arrival to engine's first token", _histogram),
    Definition("vLLM per request", "first scheduled to first token: no queue", _prefill),
    Definition("vLLM bench", "request to first chunk, even an empty one", _first_byte, on_top=NET),
    Definition("guidellm", "request to first token", _ttft, on_top=NET),
    Definition("aiperf", "request to first chunk with content", _ttft, on_top=NET),
    Definition("gateway", "request to first byte of the body", _first_byte, on_top=NET),
)

TPOT: Final = (
    Definition("llm_trace", "first to last token sent, by n-1", _decode),
    Definition("vLLM histogram", "engine's first to last token, by n-1", _engine_decode),
    Definition("vLLM per request", "the same, called mean ITL", _engine_decode),
    Definition("vLLM bench", "first to last chunk, by n-1", _decode),
    Definition("guidellm", "request to last token, by n", _with_first, on_top=NET),
    Definition("aiperf", "first token to the end of the answer, by n-1", _until_end),
)
