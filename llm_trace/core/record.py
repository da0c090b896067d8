"""The frozen record of one finished request: the only thing that observers and diagnosis see."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from llm_trace import semconv as s
from llm_trace.core.identity import TraceIdentity
from llm_trace.core.inside import Inside
from llm_trace.core.ledger import Segment
from llm_trace.core.outcome import Outcome
from llm_trace.core.usage import Usage

StartState = Literal["cold", "warm", "partial", "cached", "unknown"]
Leg = Literal["prefill", "decode"]
Attributes = Mapping[str, object]


class IntervalRecord(NamedTuple):
    """A closed interval of app time: becomes one child span, which may overlap others.

    With the span id 0 it is the span of another instrumentation, which exports it by itself.
    """

    phase: str
    """`retrieval`, `model_load`, or the app's own name."""
    start: int
    end: int
    span_id: int
    parent_span_id: int
    attributes: Attributes
    error_type: str | None = None


class ChunkGaps(NamedTuple):
    """Gaps between token-bearing chunks, or tokens, counted into `semconv.TOKEN_BUCKETS`."""

    counts: Sequence[int]
    """One per bucket, and one more for what is above the last bound."""
    total: int
    """Sum of the gaps, ns."""
    longest: int
    """The longest gap, ns."""


class PrefillChunk(NamedTuple):
    """A part of a prompt that the engine computed in one step; stamps in monotonic ns."""

    tokens: int
    start: int
    end: int


class Transfer(NamedTuple):
    """The KV cache of a prompt, coming from another engine or a store; stamps in monotonic ns."""

    start: int
    end: int
    """0 where it was still coming when the request was over."""


class CallRecord(NamedTuple):
    """One engine call of the request; stamps in monotonic ns, 0 where nobody gave one."""

    operation: str
    model: str
    source: s.Source
    span_id: int
    """0 for an engine inside this server: its phases hang on the root."""
    parent_span_id: int
    handed_off: int
    queued: int
    scheduled: int
    first_token: int
    last_token: int
    returned: int
    usage: Usage
    preemptions: int
    requeued: int
    """Time spent waiting again after preemptions, ns."""
    cold: bool
    """It paid for a model load, wake, compile or the engine's first execution."""
    attributes: Attributes
    error_type: str | None = None
    finish_reason: str | None = None
    prefill_chunks: int | None = None
    """Steps in which the engine computed parts of the prompt; None where it does not say."""
    chunks: tuple[PrefillChunk, ...] = ()
    """The first of them, in order; a bounded number."""
    sent: int = 0
    """Behind a wire: when the last attempt was sent."""
    first_byte: int = 0
    """Behind a wire: when the first byte of its answer was here."""
    inside: Inside | None = None
    """Behind a wire: what the engine said of its own time."""
    inferred: bool = False
    """The engine stamped neither `queued` nor `scheduled`: they follow from its reports."""
    running: int | None = None
    """Requests in the batch when this one was first scheduled, as the step before left it."""
    waiting: int | None = None
    """Requests in the queue then; this one too, where it had to wait."""
    kv_usage: float | None = None
    """Share of the KV cache in use then, 0 to 1."""
    deferred: int | None = None
    """The most requests that waited for something else than room, while this one waited."""
    most_running: int | None = None
    """The most requests in the batch while this one waited."""
    most_kv_usage: float | None = None
    """The most of the KV cache in use while this one waited."""
    computed_tokens: int | None = None
    """Prompt tokens that were computed in `chunks`, whatever became of the request."""
    external_tokens: int | None = None
    """Prompt tokens whose KV cache came from elsewhere; cached ones include them."""
    rank: int | None = None
    """The data-parallel rank of the engine, where there are several."""
    leg: Leg | None = None
    """Which part of a disaggregated request it was; None where one engine did both."""
    longest_gap: int | None = None
    """The longest time between two ticks of the engine that brought tokens, ns."""
    stall: int | None = None
    """What the tokens took beyond a median gap for each, ns."""
    stall_cause: str | None = None
    """`preempted` or `prefill` (of another request in the same step); None where nobody knows."""
    token_gaps: ChunkGaps | None = None
    """Times between tokens, from the engine's ticks."""
    transfers: tuple[Transfer, ...] = ()
    """For which the request waited before it was scheduled, in order; a bounded number."""


class HttpFacts(NamedTuple):
    """What the HTTP exchange showed."""

    method: str = ""
    path: str = ""
    route: str | None = None
    scheme: str = ""
    server: tuple[str, int | None] | None = None
    status: int = 0


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """Everything known of one finished request; all stamps are monotonic ns."""

    identity: TraceIdentity | None
    received: int
    finished: int
    wall_offset: int
    """Unix ns minus monotonic ns, sampled once for this request."""
    segments: tuple[Segment, ...]
    moments: Mapping[str, int]
    moments_dropped: int
    outcome: Outcome
    error_type: str | None
    start_state: StartState
    operation: str | None
    """None for a request that is no generation: it makes a plain HTTP span and no metric."""
    provider: str
    model: str | None
    streamed: bool
    http: HttpFacts
    usage: Usage
    request: Attributes
    """`gen_ai.request.*` as the client asked."""
    response: Attributes
    """`gen_ai.response.*` as the answer said."""
    attributes: Attributes
    """What the app added with `annotate`."""
    intervals: tuple[IntervalRecord, ...] = ()
    calls: tuple[CallRecord, ...] = ()
    visible: CallRecord | None = None
    """The call whose tokens the client saw."""
    parallel_calls: int = 0
    """How many calls made the answer side by side; those that only prepared it are not counted."""
    first_answer: int = 0
    tokens_observable: bool = True
    gaps: ChunkGaps | None = None
    content: Attributes = field(default_factory=dict)
    """What was said, bounded and encodable as it is; empty unless content is captured."""
    edge: int | None = None
    """From the stamp of the proxy before us to our arrival, ns, by two wall clocks; never a part of
    the ledger. None where nobody stamped it, or the stamp was not believed."""
    send_wait: int = 0
    """Ns for which the server's `send` was held back up to the first token, or to the end of an
    answer without one: back-pressure of the client."""
    send_wait_total: int = 0
    """The same over the whole answer."""
    loop_lag: int | None = None
    """Ns: the longest time for which the event loop was blocked while the request waited for its
    first token, or for its end; None where it was not measured."""
    phases: Mapping[str, int] = field(default_factory=dict)
    """Total ns by phase; their sum is exactly `finished - received`."""
    ttft_phases: Mapping[str, int] = field(default_factory=dict)
    """Ns by phase up to the first visible token; their sum is exactly `ttft`."""

    @property
    def duration(self) -> int:
        """From arrival to last byte, ns."""
        return self.finished - self.received

    @property
    def ttft(self) -> int | None:
        """From arrival to the first visible token, ns; None when there was none."""
        first = self.moments.get("first_token_sent")
        return None if first is None else first - self.received

    @property
    def last_phase(self) -> str:
        """The phase in which the request ended."""
        return self.segments[-1].phase if self.segments else s.ADMISSION

    @property
    def token_gaps(self) -> ChunkGaps | None:
        """Times between the tokens of each call, from the engines' ticks."""
        known = [call.token_gaps for call in self.calls if call.token_gaps is not None]
        if len(known) <= 1:  # nearly always
            return known[0] if known else None
        counts = zip(*(gaps.counts for gaps in known), strict=True)
        longest = max(gaps.longest for gaps in known)
        return ChunkGaps(tuple(map(sum, counts)), sum(gaps.total for gaps in known), longest)

    @property
    def wasted_tokens(self) -> int | None:
        """Prompt tokens computed for nobody; None when the client got a token, or nobody knows."""
        if self.outcome == "ok" or self.ttft is not None:
            return None
        known = [tokens for call in self.calls if (tokens := computed_tokens(call)) is not None]
        return sum(known) if known else None

    @property
    def time_per_output_token(self) -> float | None:
        """(last token - first token) / (n - 1), ns; None under two tokens.

        Client-side stamps when one call made the whole answer, else the visible call's own.
        """
        if self.streamed and self.parallel_calls <= 1:
            first, last = (self.moments.get(m, 0) for m in ("first_token_sent", "last_token_sent"))
            tokens = self.usage.output_tokens
        elif self.visible is not None:
            first, last = self.visible.first_token, self.visible.last_token
            tokens = self.visible.usage.output_tokens
        else:
            return None
        if tokens is None or tokens < 2:  # noqa: PLR2004 - a gap needs two
            return None
        if not self.received <= first <= last <= self.finished:
            return None  # missing, or stamps of another clock
        return (last - first) / (tokens - 1)


def computed_tokens(call: CallRecord) -> int | None:
    """Prompt tokens that the engine computed for `call`; None where it did not say."""
    if call.computed_tokens is not None:
        return call.computed_tokens
    usage = call.usage
    if not call.first_token or usage.input_tokens is None or usage.cached_tokens is None:
        return None
    return max(0, usage.input_tokens - usage.cached_tokens)


def transfers_in(record: RequestRecord, wait: Segment) -> list[Transfer]:
    """Those of the visible call, as far as they lie in `wait`, a part of its `queue_wait`."""
    parts = []
    for start, end in record.visible.transfers if record.visible is not None else ():
        part = Transfer(max(start, wait.start), min(end or record.finished, wait.end))
        if part.end > part.start:
            parts.append(part)
    return parts


def transfers(record: RequestRecord) -> list[Transfer]:
    """The transfers of the KV cache for which `record` waited, as its `queue_wait` holds them."""
    if record.visible is None or not record.visible.transfers:  # nearly always
        return []
    waits = [segment for segment in record.segments if segment.phase == s.QUEUE_WAIT]
    return [part for wait in waits for part in transfers_in(record, wait)]


def sum_by_phase(segments: Sequence[Segment], until: int | None = None) -> dict[str, int]:
    """Ns by phase over `segments`, cut at the stamp `until`."""
    totals: dict[str, int] = {}
    last = math.inf if until is None else until
    for phase, start, end in segments:
        if end <= last:
            totals[phase] = totals.get(phase, 0) + end - start
        elif start < last:
            totals[phase] = totals.get(phase, 0) + int(last) - start
    return totals
