"""One trace from one record: the root, a span per phase, the app's intervals and engine calls.

All are made when the request is over, from stamps that are known, so a span costs nothing while the
request runs and their number depends on phases, never on chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import NoneType
from typing import Final, TypeVar

from opentelemetry.trace import SpanContext, SpanKind

from llm_trace import semconv as s
from llm_trace.core.identity import TraceIdentity
from llm_trace.core.ledger import HANDED_OFF, QUEUED, SCHEDULED, Segment
from llm_trace.core.outcome import FAULTS
from llm_trace.core.record import (
    CallRecord,
    IntervalRecord,
    RequestRecord,
    Transfer,
    computed_tokens,
    transfers,
    transfers_in,
)
from llm_trace.core.timeline import random_span_id
from llm_trace.core.verdict import Judge, Verdict
from llm_trace.observers.root import decode_facts, root_attributes, root_name, transfer_seconds
from llm_trace.observers.sink import FinishedSpan, SpanSink
from llm_trace.observers.tracer import span_context
from llm_trace.observers.values import Value, clean_all

SOURCES: Final[Mapping[str, str]] = {
    s.ADMISSION: "asgi",
    s.PREPARE: "app",
    s.NETWORK: "upstream",
    s.QUEUE_WAIT: "engine",
    s.PREFILL: "engine",
    s.FIRST_TOKEN: "asgi",
    s.DECODE: "asgi",
}
"""The phases that become spans of their own, and who stamped them; the rest are attributes, or
the spans of intervals and calls."""

_OF_THE_CALL: Final = frozenset({s.NETWORK, s.QUEUE_WAIT, s.PREFILL})

_ALIASES: Final[Mapping[str, str]] = {
    "data_source": s.DATA_SOURCE_ID,
    "documents": s.RETRIEVAL_DOCUMENTS,
    "tokens": s.RETRIEVAL_TOKENS,
    "top_k": s.RETRIEVAL_TOP_K,
}


Expect = Callable[[RequestRecord], float | None]


class SpanObserver:
    """Makes the spans of a sampled request and hands them to a sink.

    Args:
        find_sink: Where they go, once there is a provider.
        limit: Bound of a string attribute, in UTF-8 bytes.
        latency: Whether the root carries the `gen_ai.latency.*` keys.
        expect: Seconds of TTFT that a benchmark lets us expect of a request, if there is one.
        judge: Finds the verdict that the root carries; None: it has none.
    """

    def __init__(
        self,
        find_sink: Callable[[], SpanSink | None],
        *,
        limit: int,
        latency: bool,
        expect: Expect | None = None,
        judge: Judge | None = None,
    ) -> None:
        self._find_sink = find_sink
        self._limit = limit
        self._latency = latency
        self._expect = expect
        self._judge = judge

    def observe(self, record: RequestRecord) -> None:
        """Hand over the spans of `record`, to be made when they are wanted."""
        identity = record.identity
        sink = self._find_sink() if identity is not None and identity.sampled else None
        if identity is not None and sink is not None:
            verdict = self._verdict(record)  # now, while the judge remembers it for others
            sink.emit(_Trace(self, _settled(record, self._limit), identity, verdict))

    def spans(self, record: RequestRecord, identity: TraceIdentity) -> Iterator[FinishedSpan]:
        """The spans of `record`, children first, as a live tracer would end them."""
        return self.judged(record, identity, self._verdict(record))

    def judged(
        self, record: RequestRecord, identity: TraceIdentity, verdict: Verdict | None
    ) -> Iterator[FinishedSpan]:
        """The same for a record with its verdict."""
        family = _Family(identity, record.wall_offset)
        if record.operation is not None:
            for segment in record.segments:
                if segment.phase in SOURCES:
                    yield from self._phase(family, record, segment)
        for interval in record.intervals:
            if interval.span_id:  # others are other people's spans
                yield self._interval(family, interval)
        for call in record.calls:
            if call.span_id:
                yield self._call(family, record, call)
        yield self._root(family, record, verdict)

    def _verdict(self, record: RequestRecord) -> Verdict | None:
        return None if self._judge is None else self._judge(record)

    def _root(
        self, family: _Family, record: RequestRecord, verdict: Verdict | None
    ) -> FinishedSpan:
        owns = family.identity.owns_server_span
        attributes = root_attributes(record, limit=self._limit, latency=self._latency)
        if self._expect is not None and (seconds := self._expect(record)) is not None:
            attributes[s.EXPECTED_TTFT] = seconds
        if verdict is not None:
            attributes.update(clean_all(verdict.attributes(), self._limit))
        return FinishedSpan(
            root_name(record),
            family.root,
            family.parent,
            SpanKind.SERVER if owns else SpanKind.INTERNAL,
            record.received + record.wall_offset,
            record.finished + record.wall_offset,
            attributes,
            failed=record.outcome in FAULTS,
        )

    def _phase(
        self, family: _Family, record: RequestRecord, segment: Segment
    ) -> Iterator[FinishedSpan]:
        phase = segment.phase
        attributes: dict[str, Value] = {s.PHASE: phase, s.PHASE_SOURCE: SOURCES[phase]}
        call = record.visible
        if call is not None and phase in _PHASE_FACTS:
            facts = _PHASE_FACTS[phase](record, call)
            attributes.update((key, value) for key, value in facts if value is not None)
        if phase == s.DECODE and not record.streamed:
            attributes[s.PHASE_SOURCE] = "engine"
        elif call is not None and call.inferred and phase in _OF_THE_CALL:
            attributes[s.PHASE_SOURCE] = "inferred"
        if call is not None and call.inside and attributes[s.PHASE_SOURCE] == "engine":
            attributes[s.PHASE_SOURCE] = "upstream"  # told by the engine, placed by us
        parent = call.span_id if call is not None and phase in _OF_THE_CALL else 0
        span_id = random_span_id()
        if phase == s.QUEUE_WAIT and (parts := transfers_in(record, segment)):
            attributes[s.QUEUE_KV_TRANSFER] = transfer_seconds(parts)
            yield from (self._transfer(family, span_id, part) for part in parts)
        yield family.child(phase, span_id, parent, segment.start, segment.end, attributes)

    @staticmethod
    def _transfer(family: _Family, parent: int, part: Transfer) -> FinishedSpan:
        """A part of the wait and no phase beside it, so it has no such key."""
        source: dict[str, Value] = {s.PHASE_SOURCE: "engine"}
        return family.child(s.KV_TRANSFER, random_span_id(), parent, *part, source)

    def _interval(self, family: _Family, interval: IntervalRecord) -> FinishedSpan:
        pairs = [(_ALIASES.get(k, k), v) for k, v in interval.attributes.items()]
        attributes = clean_all(pairs, self._limit)
        name = interval.phase
        if interval.phase == s.RETRIEVAL:
            attributes[s.OPERATION_NAME] = s.RETRIEVAL
            name = f"{name} {attributes.get(s.DATA_SOURCE_ID, '')}".rstrip()
        attributes[s.PHASE] = interval.phase
        attributes[s.PHASE_SOURCE] = "app"
        if interval.error_type:
            attributes[s.ERROR_TYPE] = interval.error_type
        return family.child(
            name,
            interval.span_id,
            interval.parent_span_id,
            interval.start,
            interval.end,
            attributes,
            kind=SpanKind.CLIENT if s.SERVER_ADDRESS in attributes else SpanKind.INTERNAL,
            failed=interval.error_type is not None,
        )

    def _call(self, family: _Family, record: RequestRecord, call: CallRecord) -> FinishedSpan:
        phase = s.ENGINE if call is record.visible else s.GENERATION
        attributes = clean_all(
            (
                (s.OPERATION_NAME, call.operation),
                (s.PROVIDER_NAME, record.provider),
                (s.REQUEST_MODEL, call.model),
                (s.PHASE, phase),
                (s.PHASE_SOURCE, call.source),
                (s.USAGE_INPUT_TOKENS, call.usage.input_tokens),
                (s.USAGE_OUTPUT_TOKENS, call.usage.output_tokens),
                (s.USAGE_CACHED_TOKENS, call.usage.cached_tokens),
                (s.ERROR_TYPE, call.error_type),
                *call.attributes.items(),
            ),
            self._limit,
        )
        return family.child(
            f"{attributes.get(s.OPERATION_NAME, '')} {attributes.get(s.REQUEST_MODEL, '')}".strip(),
            call.span_id,
            call.parent_span_id,
            call.handed_off,
            min(call.returned or record.finished, record.finished),
            attributes,
            kind=SpanKind.CLIENT if call.source == "upstream" else SpanKind.INTERNAL,
            failed=call.error_type is not None,
        )


class _Trace:
    """The spans of one record, not made yet: a record is the smaller thing to keep in a queue."""

    __slots__ = ("_identity", "_observer", "_record", "_verdict")

    def __init__(
        self,
        observer: SpanObserver,
        record: RequestRecord,
        identity: TraceIdentity,
        verdict: Verdict | None,
    ) -> None:
        self._observer = observer
        self._record = record
        self._identity = identity
        self._verdict = verdict

    def __len__(self) -> int:
        record = self._record
        phases = record.segments if record.operation is not None else ()
        made = [segment.phase for segment in phases if segment.phase in SOURCES]
        own = [interval for interval in record.intervals if interval.span_id]
        calls = [call for call in record.calls if call.span_id]
        return 1 + len(made) + len(transfers(record)) + len(own) + len(calls)

    def __iter__(self) -> Iterator[FinishedSpan]:
        return self._observer.judged(self._record, self._identity, self._verdict)


_PLAIN: Final = frozenset({str, int, float, bool, NoneType})


def _settled(record: RequestRecord, limit: int) -> RequestRecord:
    """`record` with the app's values as they are now: its objects are for its own thread to read.

    Spans may be made later, in another thread, where an object may have changed or may not be
    touched. Text and numbers, which nearly all are, stay as they are.
    """
    said = [record.attributes]
    said += [interval.attributes for interval in record.intervals]
    said += [call.attributes for call in record.calls]
    if all(_is_plain(value) for attributes in said for value in attributes.values()):
        return record
    calls = {id(call): _settle(call, limit) for call in record.calls}
    return replace(
        record,
        attributes=clean_all(record.attributes.items(), limit),
        intervals=tuple(_settle(interval, limit) for interval in record.intervals),
        calls=tuple(calls.values()),
        visible=calls.get(id(record.visible)),  # one of them, and known by being the same
    )


def _is_plain(value: object) -> bool:
    if type(value) is tuple:
        return all(type(item) in _PLAIN for item in value)
    return type(value) in _PLAIN


Said = TypeVar("Said", IntervalRecord, CallRecord)


def _settle(said: Said, limit: int) -> Said:
    return said._replace(attributes=clean_all(said.attributes.items(), limit))


def _queue_facts(record: RequestRecord, call: CallRecord) -> list[tuple[str, Value | None]]:
    handed_off, queued, scheduled = (
        record.moments.get(m, 0) for m in (HANDED_OFF, QUEUED, SCHEDULED)
    )
    facts: list[tuple[str, Value | None]] = [
        (s.BATCH_RUNNING, call.running),
        (s.BATCH_WAITING, call.waiting),
        (s.BATCH_KV_USAGE, call.kv_usage),
    ]
    if queued and not call.inferred:
        facts.append((s.QUEUE_BEFORE_ENGINE, (queued - handed_off) / 1e9 if handed_off else None))
        facts.append((s.QUEUE_IN_ENGINE, (scheduled - queued) / 1e9 if scheduled else None))
    return facts


def _prefill_facts(record: RequestRecord, call: CallRecord) -> list[tuple[str, Value | None]]:
    return [
        (s.PREFILL_CACHED_TOKENS, call.usage.cached_tokens),
        (s.PREFILL_COMPUTED_TOKENS, computed_tokens(call)),
        (s.PREFILL_EXTERNAL_TOKENS, call.external_tokens),
        (s.START_STATE, record.start_state),
        (s.PREFILL_CHUNKS, call.prefill_chunks),
        *(_chunk_facts(call) if call.chunks else ()),
    ]


def _chunk_facts(call: CallRecord) -> list[tuple[str, Value | None]]:
    """Tokens, and seconds from the first schedule and of its step, chunk by chunk."""
    since = call.scheduled or call.chunks[0].start
    return [
        (s.PREFILL_CHUNK_TOKENS, tuple(chunk.tokens for chunk in call.chunks)),
        (s.PREFILL_CHUNK_STARTS, tuple((chunk.start - since) / 1e9 for chunk in call.chunks)),
        (
            s.PREFILL_CHUNK_DURATIONS,
            tuple((chunk.end - chunk.start) / 1e9 for chunk in call.chunks),
        ),
    ]


def _decode_facts(record: RequestRecord, call: CallRecord) -> list[tuple[str, Value | None]]:
    return [
        (s.USAGE_OUTPUT_TOKENS, record.usage.output_tokens),
        (s.PREEMPTIONS, call.preemptions or None),
        *decode_facts(call),
    ]


_PHASE_FACTS: Final = {
    s.QUEUE_WAIT: _queue_facts,
    s.PREFILL: _prefill_facts,
    s.DECODE: _decode_facts,
}


class _Family:
    """The contexts of one trace, made once."""

    __slots__ = ("_made", "identity", "offset", "parent", "root")

    def __init__(self, identity: TraceIdentity, offset: int) -> None:
        self.identity = identity
        self.offset = offset
        self.root = span_context(
            identity.trace_id, identity.span_id, sampled=True, state=identity.trace_state
        )
        self._made = {identity.span_id: self.root}
        self.parent: SpanContext | None = None
        if identity.parent_span_id:
            self.parent = self._context(identity.parent_span_id, remote=identity.parent_is_remote)

    def _context(self, span_id: int, *, remote: bool = False) -> SpanContext:
        made = self._made.get(span_id)
        if made is None:
            root = self.root  # flags and state of a trace are parsed once
            made = self._made[span_id] = SpanContext(
                root.trace_id, span_id, remote, root.trace_flags, root.trace_state
            )
        return made

    def child(
        self,
        name: str,
        span_id: int,
        parent_span_id: int,
        start: int,
        end: int,
        attributes: Mapping[str, Value],
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        failed: bool = False,
    ) -> FinishedSpan:
        """A span below the root, or below `parent_span_id`; stamps in monotonic ns."""
        return FinishedSpan(
            name,
            self._context(span_id),
            self._context(parent_span_id) if parent_span_id else self.root,
            kind,
            start + self.offset,
            end + self.offset,
            attributes,
            failed=failed,
        )
