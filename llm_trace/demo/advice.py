"""Where to look next: computed from the numbers of this run, never assumed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from llm_trace import semconv
from llm_trace.demo.engine import SLOTS
from llm_trace.demo.joined import ENGINE, NETWORK, Line
from llm_trace.demo.load import ALONE, SHARED, UNIQUE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from llm_trace.demo.summary import Summary

_QUEUE: Final = Line(ENGINE, semconv.QUEUE_WAIT)
_PREFILL: Final = Line(ENGINE, semconv.PREFILL)

HINTS: Final = {
    semconv.ADMISSION: "time before the request was accepted: body, authentication, validation, "
    "or an event loop that is busy with something else.",
    semconv.RETRIEVAL: "the search: its index, its round trips, fewer or smaller passages.",
    semconv.MODEL_LOAD: "the model was not in memory: keep it loaded, or warm it before traffic.",
    semconv.PREPARE: "prompt assembly, chat template and tokenisation, on the CPU of the server.",
    semconv.GENERATION: "earlier LLM calls of the same request: drop, merge or shorten them.",
    semconv.QUEUE_WAIT: f"requests wait for one of the engine's {SLOTS} slots: more slots "
    "(--max-num-seqs), more replicas, shorter answers, or fewer requests at once.",
    semconv.PREFILL: "the prompt is being computed: shorter prompts, a stable prefix that the "
    "cache can hold, larger batches of prompt tokens, a faster device.",
    semconv.ENGINE: "the engine was busy and gives no split: trace the engine's process too.",
    semconv.FIRST_TOKEN: "the token was there and not yet sent: detokenisation, a busy event "
    "loop, or a client that reads slowly.",
    semconv.UNATTRIBUTED: "no evidence: name it with llm_trace.phase() and measure again.",
    NETWORK: "the way to the engine and back: connections, proxies, both event loops.",
}
_UNNAMED: Final = "a phase that the app named itself."


def advise(summaries: Sequence[Summary]) -> list[str]:
    """Return sentences: who waited for what, what would help, and what would not."""
    return [
        *(_dominance(one) for one in summaries),
        *(_hint(phase) for phase in dict.fromkeys(one.dominant.phase for one in summaries)),
        *_comparisons({one.kind: one for one in summaries}),
    ]


def _dominance(one: Summary) -> str:
    line = one.dominant
    took, whole = one.part_means[line] * 1e3, one.ttft_mean * 1e3
    return (
        f"{one.kind}: {line.phase} dominates with {one.share(line):.0%} "
        f"({took:.0f} of {whole:.0f} ms, means)."
    )


def _hint(phase: str) -> str:
    return f"{phase}: {HINTS.get(phase, _UNNAMED)}"


def _comparisons(by_kind: dict[str, Summary]) -> Iterator[str]:
    alone, unique, shared = (by_kind.get(kind) for kind in (ALONE, UNIQUE, SHARED))
    if unique:
        yield from _limits(unique)
    if alone and unique:
        yield _load(alone, unique)
    if unique and shared and shared.prompt_tokens:
        yield _cache(unique, shared)


def _limits(one: Summary) -> Iterator[str]:
    """Say what the lesser of queue and prefill could give at most."""
    queue, prefill = one.part_means.get(_QUEUE, 0.0), one.part_means.get(_PREFILL, 0.0)
    if queue > prefill:
        halved = prefill / 2
        yield (
            f"A prefill twice as fast takes {halved * 1e3:.0f} ms "
            f"({halved / one.ttft_mean:.0%}) off "
            f"{one.kind} itself: the queue ends when a slot is free, and a slot is free when an "
            "answer ends."
        )
    elif queue:
        yield (
            f"No queue at all would save {one.kind} {queue * 1e3:.0f} ms "
            f"({queue / one.ttft_mean:.0%}); the rest is its own work."
        )


def _load(alone: Summary, busy: Summary) -> str:
    more = busy.ttft_mean - alone.ttft_mean
    queue = busy.part_means.get(_QUEUE, 0.0) - alone.part_means.get(_QUEUE, 0.0)
    return (
        f"Load: the same kind of prompt takes {alone.ttft_mean * 1e3:.0f} ms alone and "
        f"{busy.ttft_mean * 1e3:.0f} ms in the crowd (means); of the {more * 1e3:+.0f} ms, "
        f"{queue * 1e3:+.0f} ms are queue_wait."
    )


def _cache(fresh: Summary, shared: Summary) -> str:
    cached = (shared.cached_tokens or 0.0) / (shared.prompt_tokens or 1.0)
    return (
        f"Prefix cache: prefill takes {fresh.part_medians.get(_PREFILL, 0.0) * 1e3:.0f} ms for new "
        f"prompts and {shared.part_medians.get(_PREFILL, 0.0) * 1e3:.0f} ms with {cached:.0%} of "
        "the prompt cached (medians)."
    )
