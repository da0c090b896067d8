"""Firing and quiet cases of the alerts about the engine: queue, preemptions, cold starts, cache.

A case is one sentence; what it expects is written out, labels and annotations in full.
"""

from __future__ import annotations

from alert_series import Case, fires, ours, requests, theirs

from dashboards import vllm
from llm_trace import semconv as s


def saturated(number):
    """Build the alert for a full queue."""
    return fires(
        "LlmTraceEngineQueueSaturated",
        "warning",
        "The queue of m on vllm:8000 is full.",
        f"Waiting requests for each one that runs: {number}, and so for 5m. Prefill is not the "
        "cause: nothing that waits has reached it.",
        instance="vllm:8000",
        model_name="m",
        llm_trace_phase="queue_wait",
    )


QUEUE = (
    Case(
        "Six that wait for four that run are a full queue",
        "LlmTraceEngineQueueSaturated",
        20,
        (theirs(vllm.WAITING, "6x30"), theirs(vllm.RUNNING, "4x30")),
        (saturated("1.5"),),
    ),
    Case(
        "An engine that runs nothing while requests wait is saturated",
        "LlmTraceEngineQueueSaturated",
        20,
        (theirs(vllm.WAITING, "3x30"), theirs(vllm.RUNNING, "0x30")),
        (saturated("3"),),
    ),
    Case(
        "One that waits for eight that run is quiet",
        "LlmTraceEngineQueueSaturated",
        20,
        (theirs(vllm.WAITING, "1x30"), theirs(vllm.RUNNING, "8x30")),
    ),
)

PREEMPTIONS = (
    Case(
        "A preemption a minute for each running request is a storm",
        "LlmTracePreemptionStorm",
        20,
        (theirs(vllm.PREEMPTIONS, "0+4x30"), theirs(vllm.RUNNING, "4x30")),
        (
            fires(
                "LlmTracePreemptionStorm",
                "warning",
                "m on vllm:8000 throws requests out of its batch.",
                "Preemptions a minute for each running request: 1. The KV cache is too small for "
                "what runs at once, and preempted prompts are computed again.",
                instance="vllm:8000",
                model_name="m",
            ),
        ),
    ),
    Case(
        "A preemption now and then is quiet",
        "LlmTracePreemptionStorm",
        20,
        (theirs(vllm.PREEMPTIONS, "0+1x30"), theirs(vllm.RUNNING, "4x30")),
    ),
)

COLD = (
    Case(
        "A tenth of cold first tokens is a wave",
        "LlmTraceColdStartWave",
        20,
        (
            ours(s.TIME_TO_FIRST_TOKEN, "0+1x30", "count", llm_trace_start_state="cold"),
            ours(s.TIME_TO_FIRST_TOKEN, "0+9x30", "count", llm_trace_start_state="warm"),
        ),
        (
            fires(
                "LlmTraceColdStartWave",
                "warning",
                "Many first tokens of m pay for a cold start.",
                "10% of the first tokens of m in the last 10m waited for a load, wake or compile.",
                gen_ai_request_model="m",
                llm_trace_start_state="cold",
            ),
        ),
    ),
    Case(
        "The first request after a start is no wave",
        "LlmTraceColdStartWave",
        20,
        (
            ours(s.TIME_TO_FIRST_TOKEN, "0x15 1x15", "count", llm_trace_start_state="cold"),
            ours(s.TIME_TO_FIRST_TOKEN, "0x17 1x15", "count", llm_trace_start_state="warm"),
        ),
    ),
)

CACHE = (
    Case(
        "A cache that had four tokens in five and now has one in twelve has collapsed",
        "LlmTraceCacheHitCollapse",
        370,
        (
            ours(s.USAGE_INPUT, "0+100x400"),
            ours(s.USAGE_CACHED, "0+80x330 26408+8x70"),
            requests("0+1x400", "ok", s.FINISH),
        ),
        (
            fires(
                "LlmTraceCacheHitCollapse",
                "warning",
                "The prefix cache of m has stopped to help.",
                "8% of the prompt tokens of m came from the cache in the last 30m, less than 0.5 "
                "of what it was over the last 6h: prefill computes what it used to read.",
                gen_ai_request_model="m",
                llm_trace_phase="prefill",
            ),
        ),
    ),
    Case(
        "A cache that never had anything has not collapsed",
        "LlmTraceCacheHitCollapse",
        370,
        (
            ours(s.USAGE_INPUT, "0+100x400"),
            ours(s.USAGE_CACHED, "0+1x400"),
            requests("0+1x400", "ok", s.FINISH),
        ),
    ),
    Case(
        "Two requests that share nothing with those before are no collapse",
        "LlmTraceCacheHitCollapse",
        370,
        (
            ours(s.USAGE_INPUT, "0+100x330 33000x20 33200x50"),
            ours(s.USAGE_CACHED, "0+80x330 26400x70"),
            requests("0+1x330 330x20 332x50", "ok", s.FINISH),
        ),
    ),
)

CASES = (*QUEUE, *PREEMPTIONS, *COLD, *CACHE)
