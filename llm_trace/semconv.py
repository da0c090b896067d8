"""Every name that llm_trace puts on a span, a metric or a label: no logic, no imports of ours.

The GenAI conventions are Development status, so their names are copied here by value and held at
one schema. Prometheus names are written out beside the OpenTelemetry ones, so that both can be
searched for; a test holds them against the official translation.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

SCOPE: Final = "llm_trace"
SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.41.1"

# --- phases: the closed vocabulary of the ledger ---------------------------------------------

ADMISSION: Final = "admission"
RETRIEVAL: Final = "retrieval"
MODEL_LOAD: Final = "model_load"
PREPARE: Final = "prepare"
GENERATION: Final = "generation"
NETWORK: Final = "network"
"""The way to an engine behind a wire and back, where the engine accounts for its own time."""
QUEUE_WAIT: Final = "queue_wait"
PREFILL: Final = "prefill"
ENGINE: Final = "engine"
FIRST_TOKEN: Final = "first_token"
DECODE: Final = "decode"
FINISH: Final = "finish"
UNATTRIBUTED: Final = "unattributed"
OTHER: Final = "other"
"""The metric label of a phase, model or source that settings do not declare."""

PHASES: Final = (
    ADMISSION,
    RETRIEVAL,
    MODEL_LOAD,
    PREPARE,
    GENERATION,
    NETWORK,
    QUEUE_WAIT,
    PREFILL,
    ENGINE,
    FIRST_TOKEN,
    DECODE,
    FINISH,
    UNATTRIBUTED,
)

TEXT_COMPLETION: Final = "text_completion"
EMBEDDINGS: Final = "embeddings"
"""The operation of models that answer with no tokens."""

OUTCOMES: Final = ("ok", "cancelled", "error", "rejected", "truncated", "timeout")
START_STATES: Final = ("cold", "warm", "partial", "cached", "unknown")

# --- attributes ------------------------------------------------------------------------------

OPERATION_NAME: Final = "gen_ai.operation.name"
PROVIDER_NAME: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
REQUEST_TOP_P: Final = "gen_ai.request.top_p"
REQUEST_TOP_K: Final = "gen_ai.request.top_k"
REQUEST_SEED: Final = "gen_ai.request.seed"
REQUEST_STOP_SEQUENCES: Final = "gen_ai.request.stop_sequences"
REQUEST_STREAM: Final = "gen_ai.request.stream"
REQUEST_CHOICE_COUNT: Final = "gen_ai.request.choice.count"
HTTP_RESEND_COUNT: Final = "http.request.resend_count"
RESPONSE_ID: Final = "gen_ai.response.id"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
RESPONSE_TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
USAGE_CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
USAGE_REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
LATENCY_QUEUE: Final = "gen_ai.latency.time_in_queue"
LATENCY_TTFT: Final = "gen_ai.latency.time_to_first_token"
LATENCY_E2E: Final = "gen_ai.latency.e2e"
LATENCY_PREFILL: Final = "gen_ai.latency.time_in_model_prefill"
LATENCY_DECODE: Final = "gen_ai.latency.time_in_model_decode"
LATENCY_INFERENCE: Final = "gen_ai.latency.time_in_model_inference"
DATA_SOURCE_ID: Final = "gen_ai.data_source.id"
RETRIEVAL_TOP_K: Final = "gen_ai.retrieval.top_k"
ERROR_TYPE: Final = "error.type"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
CONTENT_TRUNCATED: Final = "llm_trace.content.truncated"
USER_PSEUDONYM: Final = "enduser.pseudo.id"

HTTP_METHOD: Final = "http.request.method"
HTTP_ROUTE: Final = "http.route"
HTTP_STATUS: Final = "http.response.status_code"
URL_PATH: Final = "url.path"
URL_SCHEME: Final = "url.scheme"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"

KV_TRANSFER: Final = "kv_transfer"
"""A span that is no phase: a part of `queue_wait`."""

PHASE: Final = "llm_trace.phase"
PHASE_SOURCE: Final = "llm_trace.phase.source"
OUTCOME: Final = "llm_trace.outcome"
LAST_PHASE: Final = "llm_trace.last_phase"
START_STATE: Final = "llm_trace.start_state"
TTFT: Final = "llm_trace.ttft"
TTFT_PHASE_PREFIX: Final = "llm_trace.ttft."
TTFT_BAND: Final = "llm_trace.ttft_band"
EXPECTED_TTFT: Final = "llm_trace.expected_ttft"
UNATTRIBUTED_SECONDS: Final = "llm_trace.unattributed"
ENGINE_TIER: Final = "llm_trace.engine.tier"
ENGINE_REQUEST_ID: Final = "llm_trace.engine.request_id"
ENGINE_LORA: Final = "llm_trace.engine.lora_name"
ENGINE_RANK: Final = "llm_trace.engine.data_parallel_rank"
ENGINE_LEG: Final = "llm_trace.engine.disaggregated"
QUEUE_BEFORE_ENGINE: Final = "llm_trace.queue.before_engine"
QUEUE_IN_ENGINE: Final = "llm_trace.queue.in_engine"
QUEUE_KV_TRANSFER: Final = "llm_trace.queue.kv_transfer"
QUEUE_REQUEUED: Final = "llm_trace.queue.requeued"
BATCH_RUNNING: Final = "llm_trace.batch.running"
BATCH_WAITING: Final = "llm_trace.batch.waiting"
BATCH_KV_USAGE: Final = "llm_trace.batch.kv_cache_usage"
PREEMPTIONS: Final = "llm_trace.preemptions"
PREFILL_CACHED_TOKENS: Final = "llm_trace.prefill.cached_tokens"
PREFILL_COMPUTED_TOKENS: Final = "llm_trace.prefill.computed_tokens"
PREFILL_EXTERNAL_TOKENS: Final = "llm_trace.prefill.external_tokens"
PREFILL_WASTED_TOKENS: Final = "llm_trace.prefill.wasted_tokens"
PREFILL_CHUNKS: Final = "llm_trace.prefill.chunks"
PREFILL_CHUNK_TOKENS: Final = "llm_trace.prefill.chunk.tokens"
PREFILL_CHUNK_STARTS: Final = "llm_trace.prefill.chunk.starts"
PREFILL_CHUNK_DURATIONS: Final = "llm_trace.prefill.chunk.durations"
EDGE: Final = "llm_trace.edge"
LOOP_LAG: Final = "llm_trace.event_loop.max_lag"
SEND_WAIT: Final = "llm_trace.send_wait"
SEND_WAIT_TOTAL: Final = "llm_trace.send_wait.total"
DECODE_MAX_GAP: Final = "llm_trace.decode.max_gap"
DECODE_MAX_TOKEN_GAP: Final = "llm_trace.decode.max_token_gap"
DECODE_STALL: Final = "llm_trace.decode.stall"
DECODE_STALL_CAUSE: Final = "llm_trace.decode.stall_cause"
FIRST_TOKEN_OBSERVABLE: Final = "llm_trace.tokens.observable"
MOMENTS_DROPPED: Final = "llm_trace.moments.dropped"
UPSTREAM_CONNECT: Final = "llm_trace.upstream.connect"
UPSTREAM_FIRST_BYTE: Final = "llm_trace.upstream.first_byte"
UPSTREAM_OUTCOME: Final = "llm_trace.upstream.outcome"
UPSTREAM_FAILURES: Final = "llm_trace.upstream.failures"
UPSTREAM_RETRY: Final = "llm_trace.upstream.retry"
UPSTREAM_PREFIX: Final = "llm_trace.upstream.phase."
RETRIEVAL_DOCUMENTS: Final = "llm_trace.retrieval.documents"
RETRIEVAL_TOKENS: Final = "llm_trace.retrieval.tokens"
REASON: Final = "llm_trace.reason"
SAMPLING_REASON: Final = "llm_trace.sampling.reason"
SAMPLING_RATIO: Final = "llm_trace.sampling.ratio"

VERDICT: Final = "llm_trace.verdict"
VERDICT_CONFIDENCE: Final = "llm_trace.verdict.confidence"
VERDICT_REASON: Final = "llm_trace.verdict.reason"
VERDICT_NEXT_CHECK: Final = "llm_trace.verdict.next_check"
VERDICT_TTFT_IF_HALVED: Final = "llm_trace.verdict.ttft_if_halved"
VERDICT_TTFT_IF_PREFILL_HALVED: Final = "llm_trace.verdict.ttft_if_prefill_halved"
VERDICT_PREFILL_RATIO: Final = "llm_trace.verdict.prefill_ratio"
VERDICT_DECODE_RATIO: Final = "llm_trace.verdict.decode_ratio"

VERDICTS: Final = (
    *("edge", "admission", "retrieval", "cold_start", "prepare", "generation", "app_phase"),
    *("network", "queue_slots", "queue_kv_cache", "queue_deferred", "queue_before_engine"),
    *("queue", "prefill", "prefill_near_floor", "prefill_far_from_floor", "prefill_contended"),
    *("cache_lost", "preempted", "event_loop", "back_pressure", "delivery"),
    *("decode", "decode_near_floor", "decode_far_from_floor", "decode_stalled"),
    "not_enough_evidence",
)
"""What a request can be said to have waited for: the values of `llm_trace.verdict`."""

Source = Literal["asgi", "app", "engine", "upstream", "inferred"]
"""Who took the stamps of a phase: the values of `llm_trace.phase.source`.

`inferred`: nobody stamped it; it follows from what the engine reported after its steps.
"""

# --- buckets, in seconds ----------------------------------------------------------------------

DURATION_BUCKETS: Final = tuple(0.01 * 2**power for power in range(17))
WAIT_BUCKETS: Final = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
TOKEN_BUCKETS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3),
    *(0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
TTFT_BANDS: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, float("inf"))
"""Upper bounds of the bands that tell the tail's phases from the bulk's."""
TTFT_BAND_LABELS: Final = ("0.1", "0.25", "0.5", "1", "2", "4", "8", "16", "32", "+Inf")

RATIO_BUCKETS: Final = (
    *(0.5, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.5, 10.0, 15.0, 20.0, 50.0, 100.0),
)
"""Measured over floor, no unit."""

# --- metrics ----------------------------------------------------------------------------------

Kind = Literal["histogram", "counter", "updowncounter", "gauge"]


class Metric(NamedTuple):
    """One instrument: the row from which both its Prometheus and its OTLP form are made."""

    name: str
    """OpenTelemetry name."""
    prometheus: str
    """What the OpenTelemetry-to-Prometheus translation makes of `name`, unit and kind."""
    unit: str
    """UCUM unit."""
    kind: Kind
    labels: tuple[str, ...]
    """Attribute names; Prometheus labels are these with `_` for `.`."""
    help: str
    buckets: tuple[float, ...] = ()


REQUEST_LABELS: Final = (OPERATION_NAME, PROVIDER_NAME, REQUEST_MODEL)

REQUEST_DURATION: Final = Metric(
    "gen_ai.server.request.duration",
    "gen_ai_server_request_duration_seconds",
    "s",
    "histogram",
    (*REQUEST_LABELS, ERROR_TYPE),
    "From the request's arrival to its last byte.",
    DURATION_BUCKETS,
)
TIME_TO_FIRST_TOKEN: Final = Metric(
    "gen_ai.server.time_to_first_token",
    "gen_ai_server_time_to_first_token_seconds",
    "s",
    "histogram",
    (*REQUEST_LABELS, START_STATE),
    "From the request's arrival to the first generated token sent to the client.",
    WAIT_BUCKETS,
)
TIME_PER_OUTPUT_TOKEN: Final = Metric(
    "gen_ai.server.time_per_output_token",
    "gen_ai_server_time_per_output_token_seconds",
    "s",
    "histogram",
    REQUEST_LABELS,
    "Mean time between output tokens after the first, one sample a request.",
    TOKEN_BUCKETS,
)
PHASE_DURATION: Final = Metric(
    "llm_trace.phase.duration",
    "llm_trace_phase_duration_seconds",
    "s",
    "histogram",
    (*REQUEST_LABELS, PHASE, START_STATE),
    "Time that a request spent in one phase of its ledger; llm_trace_start_state is kept for "
    "prefill and empty on the others.",
    WAIT_BUCKETS,
)
TTFT_PHASE: Final = Metric(
    "llm_trace.ttft.phase",
    "llm_trace_ttft_phase_seconds_total",
    "s",
    "counter",
    (*REQUEST_LABELS, PHASE, TTFT_BAND),
    "Seconds of time to first token spent in each phase, by the band of the request's TTFT.",
)
TTFT_REQUESTS: Final = Metric(
    "llm_trace.ttft.requests",
    "llm_trace_ttft_requests_total",
    "{request}",
    "counter",
    (*REQUEST_LABELS, TTFT_BAND),
    "Requests with a time to first token, by its band.",
)
TTFT_OR_END: Final = Metric(
    "llm_trace.time_to_first_token_or_end",
    "llm_trace_time_to_first_token_or_end_seconds",
    "s",
    "histogram",
    REQUEST_LABELS,
    "Time to first token, or the whole wait of a streamed request that ended without one.",
    WAIT_BUCKETS,
)
EXPECTED_TIME_TO_FIRST_TOKEN: Final = Metric(
    "llm_trace.expected_time_to_first_token",
    "llm_trace_expected_time_to_first_token_seconds",
    "s",
    "histogram",
    (*REQUEST_LABELS, START_STATE),
    "Time to first token that a benchmark of this server measured for a prompt of this length, as "
    "much of it cached; only with the setting `benchmark`.",
    WAIT_BUCKETS,
)
TIME_TO_FIRST_ANSWER: Final = Metric(
    "llm_trace.time_to_first_answer",
    "llm_trace_time_to_first_answer_seconds",
    "s",
    "histogram",
    REQUEST_LABELS,
    "From the request's arrival to the first token sent that is not reasoning.",
    WAIT_BUCKETS,
)
TIME_PER_OUTPUT_CHUNK: Final = Metric(
    "llm_trace.time_per_output_chunk",
    "llm_trace_time_per_output_chunk_seconds",
    "s",
    "histogram",
    REQUEST_LABELS,
    "Gaps between streamed chunks that carry tokens; a chunk may hold several tokens.",
    TOKEN_BUCKETS,
)
INTER_TOKEN_LATENCY: Final = Metric(
    "llm_trace.inter_token_latency",
    "llm_trace_inter_token_latency_seconds",
    "s",
    "histogram",
    REQUEST_LABELS,
    "Times between output tokens, from the engine's own ticks; tokens of one step share its time.",
    TOKEN_BUCKETS,
)
REQUESTS: Final = Metric(
    "llm_trace.requests",
    "llm_trace_requests_total",
    "{request}",
    "counter",
    (*REQUEST_LABELS, OUTCOME, LAST_PHASE),
    "Finished requests, by outcome and the phase in which they ended.",
)
REQUESTS_ACTIVE: Final = Metric(
    "llm_trace.requests.active",
    "llm_trace_requests_active",
    "{request}",
    "updowncounter",
    (PHASE,),
    "Requests in flight, by the phase that they are in now.",
)
USAGE_INPUT: Final = Metric(
    "llm_trace.usage.input_tokens",
    "llm_trace_usage_input_tokens_total",
    "{token}",
    "counter",
    REQUEST_LABELS,
    "Prompt tokens, cached ones included.",
)
USAGE_OUTPUT: Final = Metric(
    "llm_trace.usage.output_tokens",
    "llm_trace_usage_output_tokens_total",
    "{token}",
    "counter",
    REQUEST_LABELS,
    "Generated tokens.",
)
USAGE_CACHED: Final = Metric(
    "llm_trace.usage.cache_read.input_tokens",
    "llm_trace_usage_cache_read_input_tokens_total",
    "{token}",
    "counter",
    REQUEST_LABELS,
    "Prompt tokens read from the prefix cache.",
)
USAGE_WASTED: Final = Metric(
    "llm_trace.usage.wasted_input_tokens",
    "llm_trace_usage_wasted_input_tokens_total",
    "{token}",
    "counter",
    REQUEST_LABELS,
    "Prompt tokens computed for requests that ended without a token for their client.",
)
ENGINE_INFO: Final = Metric(
    "llm_trace.engine.info",
    "llm_trace_engine_info",
    "",
    "gauge",
    (ENGINE_TIER,),
    "Engines that are joined to this server, by how much they tell.",
)
ENGINE_OLDEST_WAITING: Final = Metric(
    "llm_trace.engine.oldest_waiting",
    "llm_trace_engine_oldest_waiting_seconds",
    "s",
    "gauge",
    (),
    "Age of the oldest request handed off to an engine and not known to be begun; 0 without one.",
)
ENGINE_FOREIGN_CLOCK: Final = Metric(
    "llm_trace.engine.foreign_clock",
    "llm_trace_engine_foreign_clock",
    "",
    "gauge",
    (),
    "Joined engines whose stamps were found to be of another clock, and moved to ours.",
)
VERDICTS_COUNTED: Final = Metric(
    "llm_trace.verdicts",
    "llm_trace_verdicts_total",
    "{request}",
    "counter",
    (*REQUEST_LABELS, VERDICT, TTFT_BAND),
    "Finished requests by what they waited for, and by the band of that wait: the time to first "
    "token, or the whole time of a request without one.",
)
PREFILL_RATIO: Final = Metric(
    "llm_trace.prefill.floor_ratio",
    "llm_trace_prefill_floor_ratio",
    "1",
    "histogram",
    REQUEST_LABELS,
    "Prefill time over the least possible on this device, an estimate; under 1 the settings are "
    "wrong. Only where model and device are known.",
    RATIO_BUCKETS,
)
DECODE_RATIO: Final = Metric(
    "llm_trace.decode.floor_ratio",
    "llm_trace_decode_floor_ratio",
    "1",
    "histogram",
    REQUEST_LABELS,
    "Time per output token over the least possible on this device, an estimate; under 1 the "
    "settings are wrong. Only where model and device are known.",
    RATIO_BUCKETS,
)
EDGE_TIME: Final = Metric(
    "llm_trace.edge.duration",
    "llm_trace_edge_duration_seconds",
    "s",
    "histogram",
    REQUEST_LABELS,
    "From the stamp of the proxy before us, X-Request-Start, to the arrival here; by two clocks, "
    "and no part of any other time. Only requests with a stamp that is believed.",
    WAIT_BUCKETS,
)
TTFT_SEND_WAIT_TIME: Final = Metric(
    "llm_trace.ttft.send_wait",
    "llm_trace_ttft_send_wait_seconds",
    "s",
    "histogram",
    REQUEST_LABELS,
    "For how long the server's send was held back up to the first token: back-pressure of the "
    "client. Only requests that were held at all.",
    WAIT_BUCKETS,
)
SEND_WAIT_TIME: Final = Metric(
    "llm_trace.send_wait.duration",
    "llm_trace_send_wait_duration_seconds",
    "s",
    "histogram",
    REQUEST_LABELS,
    "The same over the whole answer.",
    WAIT_BUCKETS,
)
EVENT_LOOP_LAG: Final = Metric(
    "llm_trace.event_loop.lag",
    "llm_trace_event_loop_lag_seconds",
    "s",
    "histogram",
    (),
    "How late a timer of the event loop ran, twenty samples a second: for as long nothing else "
    "ran. Up to 1 ms is the timer's own rounding.",
    WAIT_BUCKETS,
)
SPANS_DROPPED: Final = Metric(
    "llm_trace.spans.dropped",
    "llm_trace_spans_dropped_total",
    "{span}",
    "counter",
    (REASON,),
    "Spans that were made and never exported, by reason.",
)
SAMPLES_DROPPED: Final = Metric(
    "llm_trace.samples.dropped",
    "llm_trace_samples_dropped_total",
    "{sample}",
    "counter",
    (REASON,),
    "Measurements refused by a bound or a rule, by reason.",
)
ERRORS_INTERNAL: Final = Metric(
    "llm_trace.errors.internal",
    "llm_trace_errors_internal_total",
    "{error}",
    "counter",
    (REASON,),
    "Faults of llm_trace itself, contained so that no request saw them.",
)

METRICS: Final = (
    REQUEST_DURATION,
    TIME_TO_FIRST_TOKEN,
    TIME_PER_OUTPUT_TOKEN,
    PHASE_DURATION,
    TTFT_PHASE,
    TTFT_REQUESTS,
    TTFT_OR_END,
    EXPECTED_TIME_TO_FIRST_TOKEN,
    TIME_TO_FIRST_ANSWER,
    TIME_PER_OUTPUT_CHUNK,
    INTER_TOKEN_LATENCY,
    REQUESTS,
    REQUESTS_ACTIVE,
    USAGE_INPUT,
    USAGE_OUTPUT,
    USAGE_CACHED,
    USAGE_WASTED,
    ENGINE_INFO,
    ENGINE_OLDEST_WAITING,
    ENGINE_FOREIGN_CLOCK,
    VERDICTS_COUNTED,
    PREFILL_RATIO,
    DECODE_RATIO,
    EDGE_TIME,
    TTFT_SEND_WAIT_TIME,
    SEND_WAIT_TIME,
    EVENT_LOOP_LAG,
    SPANS_DROPPED,
    SAMPLES_DROPPED,
    ERRORS_INTERNAL,
)
