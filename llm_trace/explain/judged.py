"""The verdict on a told request: the one that its span carries, or one found anew."""

from __future__ import annotations

from dataclasses import dataclass

from llm_trace import semconv as s
from llm_trace.core import ledger as m
from llm_trace.core.record import CallRecord, HttpFacts, RequestRecord
from llm_trace.core.usage import Usage
from llm_trace.diagnosis.floors import Floors
from llm_trace.diagnosis.verdict import judge
from llm_trace.explain.story import Story
from llm_trace.traces.spans import Span


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict as it is shown; times in seconds."""

    cause: str
    confidence: str
    reason: str
    next_check: str
    ttft_if_halved: float | None
    ttft_if_prefill_halved: float | None
    prefill_ratio: float | None
    decode_ratio: float | None
    recorded: bool
    """It was made when the request ended, with all that was known then."""


def verdict_on(story: Story, floors: Floors | None) -> Judged | None:
    """The recorded verdict; a new one where there is none, or where floors were given."""
    if floors is None and story.root.text(s.VERDICT) is not None:
        return _recorded(story.root)
    verdict = judge(record_of(story), floors)
    if verdict is None:
        return None
    halved, prefill = verdict.ttft_if_halved, verdict.ttft_if_prefill_halved
    return Judged(
        verdict.cause,
        verdict.confidence,
        verdict.reason,
        verdict.next_check,
        None if halved is None else halved / 1e9,
        None if prefill is None else prefill / 1e9,
        verdict.ratios.prefill,
        verdict.ratios.decode,
        recorded=False,
    )


def _recorded(root: Span) -> Judged:
    return Judged(
        root.text(s.VERDICT) or "",
        root.text(s.VERDICT_CONFIDENCE) or "",
        root.text(s.VERDICT_REASON) or "",
        root.text(s.VERDICT_NEXT_CHECK) or "",
        root.number(s.VERDICT_TTFT_IF_HALVED),
        root.number(s.VERDICT_TTFT_IF_PREFILL_HALVED),
        root.number(s.VERDICT_PREFILL_RATIO),
        root.number(s.VERDICT_DECODE_RATIO),
        recorded=True,
    )


def record_of(story: Story) -> RequestRecord:
    """The record that the story's spans were made of, as far as they tell it."""
    root, ttft = story.root, story.ttft
    call = _call(story)
    moments = {m.RECEIVED: root.start, m.FINISHED: root.end}
    if ttft is not None:
        moments[m.FIRST_TOKEN_SENT] = root.start + ttft
        moments[m.LAST_TOKEN_SENT] = root.start + ttft + story.phases.get(s.DECODE, 0)
    if call.queued:
        moments |= {m.HANDED_OFF: call.handed_off, m.QUEUED: call.queued}
    outcome, state = root.text(s.OUTCOME) or "ok", root.text(s.START_STATE) or "unknown"
    return RequestRecord(
        identity=None,
        received=root.start,
        finished=root.end,
        wall_offset=0,
        segments=(),
        moments=moments,
        moments_dropped=0,
        outcome=outcome if outcome in s.OUTCOMES else "ok",  # type: ignore[arg-type] # checked
        error_type=root.text(s.ERROR_TYPE),
        start_state=state if state in s.START_STATES else "unknown",  # type: ignore[arg-type] # checked
        operation=root.text(s.OPERATION_NAME) or "chat",
        provider=root.text(s.PROVIDER_NAME) or "",
        model=root.text(s.REQUEST_MODEL),
        streamed=ttft is not None,
        http=HttpFacts(),
        usage=call.usage,
        request={},
        response={},
        attributes={},
        calls=(call,),
        visible=call,
        parallel_calls=1,
        phases=story.phases,
        ttft_phases=story.ttft_phases,
    )


def _call(story: Story) -> CallRecord:
    root = story.root
    by_phase = {x.text(s.PHASE): x for x in story.spans if x.text(s.PHASE)}
    queue, prefill = by_phase.get(s.QUEUE_WAIT), by_phase.get(s.PREFILL)
    facts = queue or root
    before = facts.nanoseconds(s.QUEUE_BEFORE_ENGINE)
    decode = story.engine.get(s.LATENCY_DECODE, 0)
    first = prefill.end if prefill is not None else 0
    stall = root.nanoseconds(s.DECODE_STALL)
    return CallRecord(
        operation="chat",
        model=root.text(s.REQUEST_MODEL) or "",
        source="engine",
        span_id=0,
        parent_span_id=0,
        handed_off=queue.start if queue is not None else 0,
        queued=queue.start + before if queue is not None and before is not None else 0,
        scheduled=prefill.start if prefill is not None else 0,
        first_token=first,
        last_token=first + decode if first else 0,
        returned=0,
        usage=Usage(story.input_tokens, story.output_tokens, story.cached_tokens),
        preemptions=root.count(s.PREEMPTIONS) or 0,
        requeued=root.nanoseconds(s.QUEUE_REQUEUED) or 0,
        cold=False,
        attributes={},
        running=facts.count(s.BATCH_RUNNING),
        waiting=facts.count(s.BATCH_WAITING),
        kv_usage=facts.number(s.BATCH_KV_USAGE),
        prefill_chunks=prefill.count(s.PREFILL_CHUNKS) if prefill is not None else None,
        stall=stall,
        stall_cause=root.text(s.DECODE_STALL_CAUSE),
    )
