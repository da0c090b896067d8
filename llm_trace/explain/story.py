"""One request told from its spans: the ledger, the engine's stamps, the verdict.

Our own root holds the ledger up to the first token; phase spans give the rest. vLLM's native span
gives durations and no places, which is enough for a ledger and said so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from llm_trace import semconv as s
from llm_trace.core.ledger import Segment
from llm_trace.core.record import sum_by_phase
from llm_trace.traces.spans import Span, TraceError, inside

BY_VLLM: Final = "vLLM's own span"
"""Who tells the ledger of a request that only vLLM traced."""
NATIVE: Final = "llm_request"
"""The span that vLLM itself makes of each engine request."""
_NATIVE_INPUT: Final = "gen_ai.usage.prompt_tokens"
_NATIVE_OUTPUT: Final = "gen_ai.usage.completion_tokens"


_BLIND: Final = (
    "vLLM measures from its own arrival to its own output: the app's time before it and the "
    "delivery after it are in no number here"
)


_INSIDE_A_PHASE: Final = {
    s.QUEUE_KV_TRANSFER: "in its queue, its KV cache was on its way from elsewhere for",
    s.QUEUE_REQUEUED: "preempted, it was back in the queue for",
}
"""Attributes that say what a part of a phase was, and how that is told."""


@dataclass(frozen=True, slots=True)
class Story:
    """A request as far as its trace tells it; times in ns, None where it does not."""

    root: Span
    spans: Sequence[Span]
    told_by: str
    """Whose span the ledger comes from."""
    ttft: int | None
    ttft_phases: Mapping[str, int]
    phases: Mapping[str, int]
    """Of the whole request; sums to its duration."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    native: Span | None = None
    """vLLM's own span of it, if it is in the trace."""
    engine: Mapping[str, int] = field(default_factory=dict)
    """The engine's own durations by their `gen_ai.latency.*` names."""
    notes: Sequence[str] = ()


def tell(spans: Sequence[Span]) -> list[Story]:
    """The requests of one trace, the outermost first.

    Raises:
        TraceError: There is none; the message says what there is.
    """
    ours = [span for span in spans if span.is_root]
    if ours:
        stories = [_ours(span, inside(span, spans)) for span in ours]
        return sorted(stories, key=lambda story: (story.root.start, -story.root.end))
    native = [span for span in spans if span.number(s.LATENCY_TTFT) is not None]
    if native:
        return [_native(span, spans) for span in native]
    raise TraceError(_refusal(spans))


def _refusal(spans: Sequence[Span]) -> str:
    services = sorted({span.service or "unnamed" for span in spans})
    names = sorted({span.name for span in spans})[:5]
    parts = [span for span in spans if s.PHASE in span.attributes]
    if parts:
        return (
            f"this trace has {len(parts)} phases of llm_trace and not the root span that they "
            "belong to: it may still be on its way, or was dropped. Look at "
            "llm_trace_spans_dropped_total, and try again."
        )
    return (
        f"this trace has {len(spans)} spans of {', '.join(services)[:80]} and no request of an "
        f"inference server: neither llm_trace's root span nor vLLM's {NATIVE}. Its spans are "
        f"called {', '.join(names)[:160]}."
    )


# --- our own spans ------------------------------------------------------------------------------


def _ours(root: Span, spans: Sequence[Span]) -> Story:
    ttft = root.nanoseconds(s.TTFT)
    prefix = s.TTFT_PHASE_PREFIX
    ttft_phases = {
        name.removeprefix(prefix): ns
        for name in root.attributes
        if name.startswith(prefix) and (ns := root.nanoseconds(name)) is not None
    }
    segments = _tiles(root, [span for span in spans if span is not root])
    native = [span for span in spans if span.name == NATIVE]
    return Story(
        root=root,
        spans=spans,
        told_by="llm_trace",
        ttft=ttft,
        ttft_phases=ttft_phases,
        phases=sum_by_phase(segments),
        input_tokens=root.count(s.USAGE_INPUT_TOKENS),
        output_tokens=root.count(s.USAGE_OUTPUT_TOKENS),
        cached_tokens=root.count(s.USAGE_CACHED_TOKENS),
        native=native[0] if native else None,
        engine=_durations(root),
        notes=list(_notes(root, ttft, ttft_phases)),
    )


def _notes(root: Span, ttft: int | None, ttft_phases: Mapping[str, int]) -> Iterator[str]:
    if ttft is not None and sum(ttft_phases.values()) != ttft:
        yield "the parts of this TTFT do not add up to it: attributes are missing"
    for name, words in _INSIDE_A_PHASE.items():
        if ns := root.nanoseconds(name):
            yield f"{words} {ns / 1e6:,.1f} ms"


def _durations(span: Span) -> dict[str, int]:
    names = (s.LATENCY_QUEUE, s.LATENCY_PREFILL, s.LATENCY_DECODE, s.LATENCY_TTFT, s.LATENCY_E2E)
    return {name: ns for name in names if (ns := span.nanoseconds(name)) is not None}


def _tiles(root: Span, below: Sequence[Span]) -> list[Segment]:
    """The phases of the whole request: each stretch goes to the phase span that covers it.

    Phases tile already; intervals of the app may overlap and lie only where no phase does.
    """
    mine = [x for x in below if x.text(s.PHASE) and not x.is_root]
    edges = {root.start, root.end}
    for span in mine:
        edges.update(at for at in (span.start, span.end) if root.start < at < root.end)
    ordered = sorted(edges)
    last = max((x.end for x in mine if x.text(s.PHASE) in _STRETCHES), default=root.start)
    visible = root.nanoseconds(s.TTFT) is not None
    segments: list[Segment] = []
    for start, end in pairwise(ordered):
        phase = _covering(mine, start, end) or s.UNATTRIBUTED
        if visible and start >= last:
            phase = s.FINISH
        segments.append(Segment(phase, start, end))
    return segments


_STRETCHES: Final = frozenset(
    {s.ADMISSION, s.PREPARE, s.QUEUE_WAIT, s.PREFILL, s.FIRST_TOKEN, s.DECODE, s.NETWORK}
)


def _covering(spans: Sequence[Span], start: int, end: int) -> str | None:
    covering = [x for x in spans if x.start <= start and end <= x.end]
    if not covering:
        return None
    best = max(
        covering,
        key=lambda x: (
            x.text(s.PHASE) in _STRETCHES,
            x.text(s.PHASE) not in {s.ENGINE, s.GENERATION},
            x.start,
        ),
    )
    return best.text(s.PHASE)


# --- vLLM's own span ----------------------------------------------------------------------------


def _native(span: Span, spans: Sequence[Span]) -> Story:
    """vLLM says how long each part took and not when, so what is between them is one rest."""
    durations = _durations(span)
    ttft = durations.get(s.LATENCY_TTFT)
    if ttft is None:
        raise TraceError(f"vLLM's span has a {s.LATENCY_TTFT} that is no time: it cannot be told.")
    queue, prefill = durations.get(s.LATENCY_QUEUE, 0), durations.get(s.LATENCY_PREFILL, 0)
    parts = {s.QUEUE_WAIT: queue, s.PREFILL: prefill}
    rest = ttft - queue - prefill
    notes = [_BLIND]
    if rest < 0:
        parts, rest = {}, ttft
        notes.append("its queue and prefill are longer than its TTFT: they contradict each other")
    ttft_phases = {s.UNATTRIBUTED: rest, **parts}
    ttft_phases = {phase: ns for phase, ns in ttft_phases.items() if ns}
    decode = min(durations.get(s.LATENCY_DECODE, 0), max(0, span.duration - ttft))
    whole = {**ttft_phases, s.DECODE: decode, s.FINISH: max(0, span.duration - ttft - decode)}
    return Story(
        root=span,
        spans=inside(span, spans),
        told_by=BY_VLLM,
        ttft=ttft,
        ttft_phases=ttft_phases,
        phases={phase: ns for phase, ns in whole.items() if ns},
        input_tokens=span.count(_NATIVE_INPUT) or span.count(s.USAGE_INPUT_TOKENS),
        output_tokens=span.count(_NATIVE_OUTPUT) or span.count(s.USAGE_OUTPUT_TOKENS),
        native=span,
        engine=durations,
        notes=notes,
    )
