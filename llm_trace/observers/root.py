"""What the root span is called and says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llm_trace import semconv as s
from llm_trace.core.record import CallRecord, RequestRecord, Transfer, transfers
from llm_trace.observers.retrieved import brought
from llm_trace.observers.values import Value, clean_all, seconds

Pairs = Iterator[tuple[str, object]]
Measured = Iterator[tuple[str, Value | None]]


def root_name(record: RequestRecord) -> str:
    """`{operation} {model}`; the operation alone for a model that did not answer.

    A request that is no generation is called by its method and route.
    """
    if record.operation is None:
        return f"{record.http.method} {record.http.route or ''}".rstrip()
    answered = record.outcome != "rejected" and record.model
    return f"{record.operation} {record.model}" if answered else record.operation


def root_attributes(record: RequestRecord, *, limit: int, latency: bool) -> dict[str, Value]:
    """Every attribute of the root span; what is not known is absent.

    Args:
        record: The finished request.
        limit: Bound of a string, in UTF-8 bytes.
        latency: Whether to add the `gen_ai.latency.*` keys.
    """
    said = [*record.attributes.items(), *_http(record)]
    if record.operation is None:
        return clean_all(said, limit)
    attributes = clean_all([*said, *_request(record)], limit)
    # What we measured is safe as it is: numbers, and words of closed sets.
    measured = [*_usage(record), *_ledger(record)]
    if latency and record.visible is not None:
        measured += _latency(record, record.visible)
    attributes.update((key, value) for key, value in measured if value is not None)
    attributes.update(record.content)  # type: ignore[arg-type]  # which has bounds of its own
    return attributes


def _http(record: RequestRecord) -> Pairs:
    http = record.http
    if record.identity is None or record.identity.owns_server_span:
        yield s.HTTP_METHOD, http.method
        yield s.HTTP_ROUTE, http.route
        yield s.URL_PATH, http.path
        yield s.URL_SCHEME, http.scheme
        yield s.HTTP_STATUS, http.status or None
        if http.server is not None:
            yield s.SERVER_ADDRESS, http.server[0]
            yield s.SERVER_PORT, http.server[1]
    yield s.ERROR_TYPE, record.error_type


def _request(record: RequestRecord) -> Pairs:
    yield s.OPERATION_NAME, record.operation
    yield s.PROVIDER_NAME, record.provider
    yield s.REQUEST_MODEL, record.model
    yield from record.request.items()
    yield from record.response.items()
    call = record.visible
    if call is not None and not call.span_id:  # the engine of this server: no span of its own
        yield from call.attributes.items()


def _usage(record: RequestRecord) -> Measured:
    usage = record.usage
    yield s.USAGE_INPUT_TOKENS, usage.input_tokens
    yield s.USAGE_OUTPUT_TOKENS, usage.output_tokens
    yield s.USAGE_CACHED_TOKENS, usage.cached_tokens
    yield s.USAGE_REASONING_TOKENS, usage.reasoning_tokens


def _ledger(record: RequestRecord) -> Measured:
    yield s.OUTCOME, record.outcome
    yield s.LAST_PHASE, record.last_phase
    yield s.START_STATE, record.start_state
    yield s.PHASE_SOURCE, _source(record.visible)
    if record.ttft is not None:
        yield s.TTFT, record.ttft / 1e9
    yield from seconds(record.ttft_phases, s.TTFT_PHASE_PREFIX)
    yield s.UNATTRIBUTED_SECONDS, record.phases.get(s.UNATTRIBUTED, 0) / 1e9
    yield s.FIRST_TOKEN_OBSERVABLE, None if record.tokens_observable else False
    yield s.MOMENTS_DROPPED, record.moments_dropped or None
    if record.gaps is not None:
        yield s.DECODE_MAX_GAP, record.gaps.longest / 1e9
    yield s.PREFILL_WASTED_TOKENS, record.wasted_tokens
    yield from _delivery(record)
    if record.intervals:
        yield s.RETRIEVAL_DOCUMENTS, brought(record, "documents")
        yield s.RETRIEVAL_TOKENS, brought(record, "tokens")
    if record.visible is not None:
        yield from _engine(record, record.visible)


def _delivery(record: RequestRecord) -> Measured:
    """What was neither the app's work nor the engine's."""
    if record.edge is not None:
        yield s.EDGE, record.edge / 1e9
    if record.loop_lag is not None:
        yield s.LOOP_LAG, record.loop_lag / 1e9
    if record.send_wait_total:
        yield s.SEND_WAIT, record.send_wait / 1e9 if record.ttft is not None else None
        yield s.SEND_WAIT_TOTAL, record.send_wait_total / 1e9


def _source(call: CallRecord | None) -> str:
    if call is None:
        return "asgi"
    return "inferred" if call.inferred else call.source


def _engine(record: RequestRecord, call: CallRecord) -> Measured:
    yield s.PREEMPTIONS, call.preemptions or None
    if parts := transfers(record):
        yield s.QUEUE_KV_TRANSFER, transfer_seconds(parts)
    yield s.QUEUE_REQUEUED, call.requeued / 1e9 if call.preemptions else None
    yield s.ENGINE_RANK, call.rank
    yield s.ENGINE_LEG, call.leg
    yield from decode_facts(call)


def transfer_seconds(parts: Sequence[Transfer]) -> float:
    """How long the KV cache was on its way."""
    return sum(part.end - part.start for part in parts) / 1e9


def decode_facts(call: CallRecord) -> Measured:
    """The rhythm of the engine's ticks, where it has ticks."""
    if call.longest_gap is not None:
        yield s.DECODE_MAX_TOKEN_GAP, call.longest_gap / 1e9
    if call.stall is not None:
        yield s.DECODE_STALL, call.stall / 1e9
    yield s.DECODE_STALL_CAUSE, call.stall_cause


def _latency(record: RequestRecord, call: CallRecord) -> Measured:
    """The keys that vLLM and SGLang share, on the engine's own clock, where it gave stamps."""
    yield s.LATENCY_E2E, record.duration / 1e9
    if call.inferred:
        return
    for key, start, end in (
        (s.LATENCY_QUEUE, call.queued, call.scheduled),
        (s.LATENCY_PREFILL, call.scheduled, call.first_token),
        (s.LATENCY_DECODE, call.first_token, call.last_token),
        (s.LATENCY_INFERENCE, call.scheduled, call.last_token),
        (s.LATENCY_TTFT, record.received, call.first_token),
    ):
        if key == s.LATENCY_TTFT and record.operation == s.EMBEDDINGS:
            continue  # its one result is no token
        if start and end > start:  # a last token that nobody marked is the first
            yield key, (end - start) / 1e9
