"""vLLM's own metrics that boards and alerts read, as vLLM 0.32 names them."""

from __future__ import annotations

from typing import Final

MODEL: Final = "model_name"
"""vLLM's label for the served model."""

RUNNING: Final = "vllm:num_requests_running"
WAITING: Final = "vllm:num_requests_waiting"
WAITING_BY_REASON: Final = "vllm:num_requests_waiting_by_reason"
KV_USAGE: Final = "vllm:kv_cache_usage_perc"
PREEMPTIONS: Final = "vllm:num_preemptions_total"
PREFIX_QUERIES: Final = "vllm:prefix_cache_queries_total"
PREFIX_HITS: Final = "vllm:prefix_cache_hits_total"
PROMPT_TOKENS: Final = "vllm:prompt_tokens_total"
PROMPT_TOKENS_BY_SOURCE: Final = "vllm:prompt_tokens_by_source_total"
OUTPUT_TOKENS: Final = "vllm:generation_tokens_total"
DRAFT_TOKENS: Final = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED_TOKENS: Final = "vllm:spec_decode_num_accepted_tokens_total"
"""Both only of an engine that speculates."""

FINISHED: Final = "vllm:request_success_total"
REJECTED: Final = "vllm:admission_rejections_total"

STEP_TOKENS: Final = "vllm:iteration_tokens_total"
"""A histogram, whatever its name ends in."""

TTFT: Final = "vllm:time_to_first_token_seconds"
INTER_TOKEN: Final = "vllm:inter_token_latency_seconds"  # noqa: S105 - no password
QUEUE: Final = "vllm:request_queue_time_seconds"
PREFILL: Final = "vllm:request_prefill_time_seconds"
COMPUTED_TOKENS: Final = "vllm:request_prefill_kv_computed_tokens"
