"""The engine: what vLLM says of its own queue, cache and steps, beside our split of the wait."""

from __future__ import annotations

from typing import Final

from dashboards import colours, knobs, vllm
from dashboards import panels as p
from dashboards import queries as q
from llm_trace import semconv as s

REPLICA: Final = ("instance", "engine")
PER_REPLICA: Final = "{{instance}} {{engine}}"


def _gauge(metric: str) -> str:
    return q.total(q.shown(metric), *REPLICA)


def _rate(metric: str, *by: str) -> str:
    return q.total(q.rate(q.shown(metric)), *by)


def _hits() -> str:
    return q.ratio(_rate(vllm.PREFIX_HITS), _rate(vllm.PREFIX_QUERIES))


def _accepted() -> str:
    return q.ratio(_rate(vllm.ACCEPTED_TOKENS, *REPLICA), _rate(vllm.DRAFT_TOKENS, *REPLICA))


def _per_computed_token() -> str:
    """Prefill seconds for each prompt token that the cache did not have."""
    took, tokens = (f"{metric}_sum" for metric in (vllm.PREFILL, vllm.COMPUTED_TOKENS))
    return q.ratio(_rate(took), _rate(tokens))


QUEUE: Final = p.Row(
    "Is there a queue?",
    (
        p.lines(
            "Running",
            "Requests in the batch, by replica.",
            p.COUNT,
            p.Query(_gauge(vllm.RUNNING), PER_REPLICA),
            width=8,
        ),
        p.lines(
            "Waiting",
            "Requests that the scheduler has and has not run, by replica. One replica far above "
            "the others is a matter of routing.",
            p.COUNT,
            p.Query(_gauge(vllm.WAITING), PER_REPLICA),
            width=8,
        ),
        p.stack(
            "Why they wait",
            "capacity: no slot or no cache block is free; deferred: held back for another reason, "
            "such as a cache transfer.",
            p.COUNT,
            p.Query(q.total(q.shown(vllm.WAITING_BY_REASON), "reason"), "{{reason}}"),
            width=8,
        ),
        p.latency(
            "Time in the engine's queue",
            "From the scheduler's receipt of a request to its first step, as vLLM measures it.",
            vllm.QUEUE,
        ),
        p.lines(
            "Queue before prefill, seen from the request",
            "p95 of the wait from the hand-off to the first step (queue_wait), beside the engine's "
            "own: what lies between them is the way into the engine.",
            p.SECONDS,
            p.Query(
                q.quantile(0.95, s.PHASE_DURATION, where=(q.equal(q.PHASE, s.QUEUE_WAIT),)),
                s.QUEUE_WAIT,
                exemplar=True,
            ),
            p.Query(q.quantile(0.95, vllm.QUEUE), "engine's own", exemplar=True),
            colours=colours.PHASES,
        ),
    ),
)

MEMORY: Final = p.Row(
    "Is there room?",
    (
        p.lines(
            "KV cache in use",
            "Share of cache blocks in use, by replica. Near 100 %, requests wait or are preempted.",
            p.SHARE,
            p.Query(q.greatest(q.shown(vllm.KV_USAGE), *REPLICA), PER_REPLICA),
            width=8,
        ),
        p.lines(
            "Preemptions",
            "Requests a second that were thrown out of the batch for want of cache blocks; their "
            "prompts are computed again.",
            p.PER_SECOND,
            p.Query(_rate(vllm.PREEMPTIONS, *REPLICA), PER_REPLICA),
            width=8,
        ),
        p.lines(
            "Prefix cache hits",
            "Share of the prompt tokens looked up that the prefix cache had.",
            p.SHARE,
            p.Query(_hits(), "hits"),
            width=8,
        ),
    ),
)

WORK: Final = p.Row(
    "What does it work on?",
    (
        p.lines(
            "Tokens in and out",
            "Prompt tokens, cached ones included, and generated tokens a second.",
            p.PER_SECOND,
            p.Query(_rate(vllm.PROMPT_TOKENS), "in"),
            p.Query(_rate(vllm.OUTPUT_TOKENS), "out"),
            width=8,
        ),
        p.stack(
            "Prompt tokens by source",
            "Prompt tokens a second: computed here, read from the cache, or brought from another "
            "engine.",
            p.PER_SECOND,
            p.Query(_rate(vllm.PROMPT_TOKENS_BY_SOURCE, "source"), "{{source}}"),
            width=8,
        ),
        p.lines(
            "Batch size",
            "Mean tokens of a step, prefill and decode together.",
            p.COUNT,
            p.Query(q.mean(vllm.STEP_TOKENS), "tokens"),
            width=8,
        ),
        p.stack(
            "Finished",
            "Requests a second that the engine finished, by reason.",
            p.REQUESTS_PER_SECOND,
            p.Query(_rate(vllm.FINISHED, "finished_reason"), "{{finished_reason}}"),
            colours=colours.FINISHED,
        ),
        p.stack(
            "Refused",
            "Requests a second that the engine refused because its queue was at a limit.",
            p.REQUESTS_PER_SECOND,
            p.Query(_rate(vllm.REJECTED, "reason"), "{{reason}}"),
        ),
    ),
)

SPEED: Final = p.Row(
    "How fast is it?",
    (
        p.lines(
            "Prefill time per computed token",
            "Seconds of prefill for each prompt token that was not cached. It grows when prefill "
            "itself got slower, and not when prompts got longer or the queue fuller.",
            p.SECONDS,
            p.Query(_per_computed_token(), "per token"),
        ),
        p.latency(
            "Prefill",
            "From a request's first step to its first token, as vLLM measures it.",
            vllm.PREFILL,
        ),
        p.latency(
            "Inter-token latency",
            "Gaps between the tokens of a request, against the objective per token; the far "
            "quantiles are stalls.",
            vllm.INTER_TOKEN,
            under=knobs.TPOT_SECONDS,
        ),
        p.lines(
            "Speculative tokens accepted",
            "Share of the drafted tokens that the model took over, by replica. Where it falls, the "
            "same batch makes fewer tokens a step. Empty without speculative decoding.",
            p.SHARE,
            p.Query(_accepted(), PER_REPLICA),
        ),
        p.lines(
            "TTFT, the engine's and the client's",
            "p95 of the engine's own time to first token beside that of the client: what lies "
            "between them happens outside the engine.",
            p.SECONDS,
            p.Query(q.quantile(0.95, vllm.TTFT), "engine", exemplar=True),
            p.Query(q.quantile(0.95, s.TIME_TO_FIRST_TOKEN), "client", exemplar=True),
        ),
    ),
)

BOARD: Final = p.Board(
    "llm-trace-engine",
    "LLM: engine (vLLM)",
    "vLLM's queue, cache and steps. Look at the queue before the kernels.",
    f"label_values({vllm.RUNNING}, {vllm.MODEL})",
    (QUEUE, MEMORY, WORK, SPEED),
)
