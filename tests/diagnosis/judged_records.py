"""Records of requests whose story is told in milliseconds."""

from __future__ import annotations

from llm_trace.core import ledger as m
from llm_trace.core.ledger import Claim
from llm_trace.core.record import CallRecord, HttpFacts, RequestRecord, sum_by_phase
from llm_trace.core.usage import Usage

BEGAN = 1_000_000_000
MS = 1_000_000

ORDER = (
    *("admitted", "handed_off", "queued", "scheduled", "first_token_engine"),
    *("first_token_sent", "last_token_sent", "finished"),
)
QUICK = dict(zip(ORDER, (1, 2, 3, 4, 24, 26, 226, 227), strict=True))
"""A quick request: 20 ms of prefill, 200 ms of decode."""

USAGE = Usage(input_tokens=100, output_tokens=21, cached_tokens=0)


def told(*claims, usage=USAGE, call=None, facts=None, outcome="ok", streamed=True, **at):
    """A record whose moments are `QUICK` with those given put over it, in ms; None leaves one out.

    Args:
        *claims: Intervals of the app: phase, start and end.
        usage: What it read and wrote.
        call: Facts of its engine call.
        facts: Facts of the record.
        outcome: How it ended.
        streamed: Whether its tokens were seen one by one.
        **at: Moments.
    """
    given = {k: BEGAN + v * MS for k, v in {**QUICK, **at}.items() if v is not None}
    given[m.RECEIVED] = BEGAN
    tiling = m.tile(
        given,
        [Claim(phase, BEGAN + start * MS, BEGAN + end * MS) for phase, start, end in claims],
        streamed=streamed,
        ended_early=outcome != "ok",
    )
    first = tiling.moments.get(m.FIRST_TOKEN_SENT)
    more, known = dict(call or {}), dict(facts or {})
    visible = CallRecord(
        operation="chat",
        model="m",
        source="engine",
        span_id=0,
        parent_span_id=0,
        handed_off=given.get(m.HANDED_OFF, 0),
        queued=given.get(m.QUEUED, 0),
        scheduled=given.get(m.SCHEDULED, 0),
        first_token=given.get(m.FIRST_TOKEN_ENGINE, 0),
        last_token=BEGAN + more.pop("last_token", at.get("last_token_sent", 226) or 226) * MS,
        returned=0,
        usage=usage,
        preemptions=more.pop("preemptions", 0),
        requeued=more.pop("requeued", 0) * MS,
        cold=False,
        attributes={},
        **more,
    )
    return RequestRecord(
        identity=None,
        received=BEGAN,
        finished=given[m.FINISHED],
        wall_offset=0,
        segments=tiling.segments,
        moments=tiling.moments,
        moments_dropped=0,
        outcome=outcome,
        error_type=None,
        start_state=known.pop("start_state", "warm"),
        operation="chat",
        provider="vllm",
        model="m",
        streamed=streamed,
        http=HttpFacts(),
        usage=usage,
        request={},
        response={},
        attributes={},
        calls=(visible,),
        visible=visible,
        parallel_calls=1,
        phases=sum_by_phase(tiling.segments),
        ttft_phases=sum_by_phase(tiling.segments, first) if first else {},
        **known,
    )
