"""What vLLM's own objects say of a request; every reading allows for what a version lacks."""

from __future__ import annotations

from typing import Any

from llm_trace import semconv as s
from llm_trace.core.record import Leg


def lora_of(request: Any) -> str:
    """The adapter's name; empty for the base model."""
    return str(getattr(getattr(request, "lora_request", None), "lora_name", "") or "")


def served_names(vllm_config: Any) -> list[str]:
    """The names under which the server offers its model, the one that it answers with first."""
    config = getattr(vllm_config, "model_config", None)
    names = getattr(config, "served_model_name", None) or []
    return [names] if isinstance(names, str) else [str(name) for name in names]


def operation_of(request: Any) -> str:
    """What the engine is asked for, in general; the HTTP request's route may know it better."""
    pooling = getattr(request, "pooling_params", None) is not None
    return s.EMBEDDINGS if pooling else s.TEXT_COMPLETION


def prompt_tokens(request: Any) -> int | None:
    """Length of the prompt, whether it came as ids or as embeddings."""
    for name in ("prompt_token_ids", "prompt_embeds"):
        prompt = getattr(request, name, None)
        if prompt is not None:
            return len(prompt)
    return None


def leg_of(request: Any) -> Leg | None:
    """Which part of a request this engine does, where its prompt is computed by another one."""
    extra = getattr(getattr(request, "sampling_params", None), "extra_args", None) or {}
    transfer = extra.get("kv_transfer_params") or {}
    if transfer.get("do_remote_decode"):
        return "prefill"
    return "decode" if transfer.get("do_remote_prefill") else None


def cached_tokens(output: Any) -> int | None:
    """Cached prompt tokens: `prefill_stats` from vLLM 0.24, `num_cached_tokens` before."""
    stats = getattr(output, "prefill_stats", None)
    cached: int | None = getattr(output if stats is None else stats, "num_cached_tokens", None)
    return cached


def external_tokens(output: Any) -> int | None:
    """Prompt tokens whose KV cache came from another engine or store: from vLLM 0.24."""
    stats = getattr(output, "prefill_stats", None)
    external: int | None = getattr(stats, "num_external_cached_tokens", None)
    return external


def is_in_order(engine: Any) -> bool:
    """Whether the scheduler takes requests in the order in which they came."""
    config = getattr(getattr(engine, "vllm_config", None), "scheduler_config", None)
    return getattr(config, "policy", None) == "fcfs"


def is_shared(engine: Any) -> bool:
    """Whether other API servers hand requests to the same engine."""
    client = getattr(engine, "engine_core", None)
    return getattr(client, "client_count", 1) != 1
