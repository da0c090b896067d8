"""From a live timeline to its record: which call was visible, what was admitted, how it tiles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from llm_trace import semconv as s
from llm_trace.core import faults
from llm_trace.core import ledger as m
from llm_trace.core.engine_call import EngineCall
from llm_trace.core.inside import place
from llm_trace.core.interval import Interval
from llm_trace.core.ledger import Claim
from llm_trace.core.outcome import Ending, Outcome, decide
from llm_trace.core.record import (
    ChunkGaps,
    HttpFacts,
    IntervalRecord,
    RequestRecord,
    StartState,
    sum_by_phase,
)
from llm_trace.core.surplus import Surplus
from llm_trace.core.timeline import Timeline
from llm_trace.core.usage import Usage, total

CACHED_SHARE: Final = 0.8
"""Share of cached prompt tokens from which a request counts as `cached`; block granularity means
that 1.0 is never reached."""


@dataclass(slots=True)
class Answer:
    """What the HTTP exchange adds to a timeline at its end."""

    ending: Ending
    http: HttpFacts
    operation: str | None = None
    model: str | None = None
    provider: str = ""
    streamed: bool = False
    tokens_observable: bool = True
    usage: Usage = field(default_factory=Usage)
    request: Mapping[str, object] = field(default_factory=dict)
    response: Mapping[str, object] = field(default_factory=dict)
    content: Mapping[str, object] = field(default_factory=dict)
    gaps: ChunkGaps | None = None
    edge: int | None = None
    cached_share: float = CACHED_SHARE


def freeze(timeline: Timeline, answer: Answer, finished: int) -> RequestRecord | None:
    """Close `timeline` at `finished` and make its record; None if it was closed before."""
    if timeline.closed:
        return None
    timeline.closed = True
    finished = max(finished, timeline.received)
    earlier, visible = split_calls(timeline.calls, timeline.first_token_sent)
    answer.ending.handed_off = bool(timeline.calls)
    answer.ending.engine_reasons = [c.finish_reason for c in visible if c.source == "engine"]
    outcome, error = decide(answer.ending)
    streamed = answer.streamed and answer.tokens_observable
    shown = first_visible(visible)
    tiling = m.tile(
        _moments(timeline, visible, shown, outcome, finished),
        _claims(timeline.intervals, earlier, shown, finished),
        streamed=streamed,
        ended_early=outcome != "ok",
    )
    if shown is not None and shown.inside and not shown.inside.fits(*_line(shown)):
        faults.drop("upstream_ledger")
    first = tiling.moments.get(m.FIRST_TOKEN_SENT)
    usage = _sound(_usage(timeline, visible).overlaid(answer.usage))
    calls = {id(call): call.freeze() for call in timeline.calls}
    return RequestRecord(
        identity=timeline.identity,
        received=timeline.received,
        finished=finished,
        wall_offset=timeline.wall_offset,
        segments=tiling.segments,
        moments=tiling.moments,
        moments_dropped=tiling.dropped,
        outcome=outcome,
        error_type=error,
        start_state=start_state(timeline, visible, usage, answer.cached_share),
        operation=answer.operation or (shown.operation if shown else None),
        provider=answer.provider,
        model=_model(shown, answer.model),
        streamed=streamed,
        http=answer.http,
        usage=usage,
        request=answer.request,
        response=answer.response,
        content=answer.content,
        attributes=timeline.attributes,
        intervals=tuple(_close(i, finished) for i in timeline.intervals),
        calls=tuple(calls.values()),
        visible=calls[id(shown)] if shown else None,
        parallel_calls=len(visible),
        first_answer=timeline.first_answer_sent,
        tokens_observable=answer.tokens_observable,
        gaps=answer.gaps,
        edge=answer.edge,
        loop_lag=timeline.loop_lag,
        send_wait=timeline.send_wait_first,
        send_wait_total=timeline.send_wait,
        phases=sum_by_phase(tiling.segments),
        ttft_phases=sum_by_phase(tiling.segments, first) if first else {},
    )


def so_far(timeline: Timeline, now: int, *, streamed: bool) -> dict[str, int]:
    """Ns by phase from the arrival to `now`, as the ledger stands; nothing is closed.

    Args:
        timeline: The request.
        now: Monotonic ns; of a stream whose first token is not sent yet, when it is.
        streamed: Whether the client sees tokens one by one.
    """
    first = (timeline.first_token_sent or now) if streamed else 0
    earlier, visible = split_calls(timeline.calls, first)
    shown = first_visible(visible)
    given = _moments(timeline, visible, shown, "ok", now)
    given[m.FIRST_TOKEN_SENT] = first
    claims = _claims(timeline.intervals, earlier, shown, now)
    return sum_by_phase(m.tile(given, claims, streamed=streamed, ended_early=False).segments)


def _usage(timeline: Timeline, visible: Sequence[EngineCall]) -> Usage:
    """What the engine read and wrote for the answer."""
    added = [call.usage_added() for call in visible]
    if timeline.surplus is not None:
        added.append(timeline.surplus.usage)
    return total(added)


def _sound(usage: Usage) -> Usage:
    """Without cached tokens that are more than the prompt: they are of others, as a beam's is."""
    if usage.cached_tokens and usage.cached_tokens > (usage.input_tokens or math.inf):
        return usage._replace(cached_tokens=None)
    return usage


def _model(call: EngineCall | None, asked: str | None) -> str | None:
    """The app's word for the model it called; for the engine of this server, the client's."""
    if call is None or not call.model:
        return asked
    return call.model if call.span_id else asked or call.model


def split_calls(
    calls: Sequence[EngineCall], first_token_sent: int
) -> tuple[list[EngineCall], list[EngineCall]]:
    """The calls that only prepared the answer, and those whose tokens may be the visible ones.

    A call that returned before a later one was handed off prepared it (query rewriting, agent
    steps). A call handed off after the first visible token explains nothing of it.
    """
    if not calls:
        return [], []
    before = [c for c in calls if not first_token_sent or c.handed_off <= first_token_sent]
    if len(before) == 1:  # nearly always
        return [], before
    if not before:
        return [], []
    latest = _latest_start(before)
    earlier = [c for c in before if c.returned and c.returned <= latest and c.handed_off < latest]
    return earlier, [call for call in before if call not in earlier]


def _latest_start(calls: Sequence[EngineCall]) -> int:
    """When the visible work began: the last hand-off.

    Of this server's own engine the last at which nothing else was under way: a batch of prompts is
    still being handed over while it has done the first.
    """
    if not all(call.source == "engine" for call in calls):
        return max(call.handed_off for call in calls)
    start, end = 0, 0.0
    for call in sorted(calls, key=lambda call: call.handed_off):
        if end <= call.handed_off:
            start = call.handed_off
        end = max(end, call.returned or math.inf)
    return start


def first_visible(visible: Sequence[EngineCall]) -> EngineCall | None:
    """Of parallel calls, the one whose token came first."""
    if len(visible) <= 1:
        return visible[0] if visible else None
    never = float("inf")
    return min(visible, key=lambda c: (c.first_token or never, c.handed_off), default=None)


def _moments(
    timeline: Timeline,
    visible: Sequence[EngineCall],
    shown: EngineCall | None,
    outcome: Outcome,
    finished: int,
) -> dict[str, object]:
    given: dict[str, object] = {
        m.RECEIVED: timeline.received,
        m.ADMITTED: _admitted(timeline, outcome),
        m.FIRST_TOKEN_SENT: timeline.first_token_sent,
        m.LAST_TOKEN_SENT: timeline.last_token_sent,
        m.FINISHED: finished,
    }
    if shown is not None:
        given[m.HANDED_OFF] = shown.handed_off
        given[m.QUEUED], given[m.SCHEDULED], _ = shown.stamps()
        given[m.FIRST_TOKEN_ENGINE] = shown.first_token
        last, given[m.RETURNED] = _ends(timeline, visible, outcome)
        given[m.LAST_TOKEN_ENGINE] = last
        if shown.operation == s.EMBEDDINGS:  # no decode: a batch is computed to its last result
            given[m.FIRST_TOKEN_ENGINE] = last
    return given


def _ends(timeline: Timeline, visible: Sequence[EngineCall], outcome: Outcome) -> tuple[int, int]:
    """The engine's last token, and when the last of its parallel calls returned."""
    ends: Sequence[EngineCall | Surplus] = visible
    if timeline.surplus is not None:
        ends = [*visible, timeline.surplus]
    over = 0 not in [end.returned for end in ends] and not timeline.surplus_under_way
    return _last_token(ends, outcome, over=over), _returned(ends, outcome, over=over)


def _last_token(ends: Sequence[EngineCall | Surplus], outcome: Outcome, *, over: bool) -> int:
    """The engine's last token; of an answer that was cut short while it ran, there was none yet."""
    return max([end.last_token for end in ends]) if over or outcome == "ok" else 0


def _returned(ends: Sequence[EngineCall | Surplus], outcome: Outcome, *, over: bool) -> int:
    """When the last of the parallel calls returned; missing where the answer was cut short."""
    return max([end.returned for end in ends]) if over and outcome == "ok" else 0


def _admitted(timeline: Timeline, outcome: Outcome) -> int:
    """When the app said so; else the first sign of it.

    A request rejected before the hand-off was never admitted, whatever it looked like.
    """
    if timeline.admitted or (outcome == "rejected" and not timeline.calls):
        return timeline.admitted
    signs = [timeline.body_complete]
    signs += [interval.start for interval in timeline.intervals]
    signs += [call.handed_off for call in timeline.calls]
    return min(filter(None, signs), default=0)


def _claims(
    intervals: Sequence[Interval],
    earlier: Sequence[EngineCall],
    shown: EngineCall | None,
    finished: int,
) -> list[Claim]:
    """What is weighed first comes first: past the bound it is earlier calls that go unweighed."""
    claims = _inside(shown, finished)
    claims += [Claim(i.phase, i.start, i.end or finished) for i in intervals]
    claims += [Claim(s.GENERATION, c.handed_off, c.returned) for c in earlier if c.handed_off]
    for _ in claims[m.MAX_CLAIMS :]:
        faults.drop("claims")
    return claims


def _inside(shown: EngineCall | None, finished: int) -> list[Claim]:
    """The phases of an engine behind a wire, where it told them."""
    if shown is None or shown.inside is None:
        return []
    return place(shown.inside, *_line(shown), shown.returned or finished)


def _line(call: EngineCall) -> tuple[int, int]:
    """Between which stamps of ours an engine behind a wire worked for its first token or answer."""
    return call.sent, call.first_token or call.first_byte


def _close(interval: Interval, finished: int) -> IntervalRecord:
    """The interval inside its request; a phase may still set attributes, so they are copied."""
    start = min(interval.start, finished)
    return IntervalRecord(
        interval.phase,
        start,
        max(start, min(interval.end or finished, finished)),
        interval.span_id,
        interval.parent_span_id,
        dict(interval.attributes),
        interval.error_type,
    )


def start_state(
    timeline: Timeline, visible: Sequence[EngineCall], usage: Usage, cached_share: float
) -> StartState:
    """How warm the engine was for this request."""
    loads = [True for i in timeline.intervals if i.phase == s.MODEL_LOAD]
    if loads or True in [call.cold for call in visible]:
        return "cold"
    if usage.cached_tokens is None or not usage.input_tokens:
        return "unknown"
    if usage.cached_tokens == 0:
        return "warm"
    share = usage.cached_tokens / usage.input_tokens
    return "cached" if share >= cached_share else "partial"
