"""Firing and quiet cases of the alerts about the app, delivery and llm_trace itself.

A case is one sentence; what it expects is written out, labels and annotations in full.
"""

from __future__ import annotations

from alert_series import APP, Case, fires, ours, phase, theirs

from dashboards import vllm
from llm_trace import semconv as s


def took(name, count, **upto):
    """Build the requests by the time that a phase took: `_0_5` is the bucket up to 0.5 s."""
    labels = {"llm_trace_phase": name, "llm_trace_start_state": ""}
    bounds = {b.strip("_").replace("_", ".").replace("inf", "+Inf"): n for b, n in upto.items()}
    buckets = (ours(s.PHASE_DURATION, n, "bucket", le=le, **labels) for le, n in bounds.items())
    return (*buckets, ours(s.PHASE_DURATION, count, "count", **labels))


RETRIEVAL = (
    Case(
        "Retrieval that takes three quarters of a second is slow",
        "LlmTraceRetrievalSlow",
        20,
        took(s.RETRIEVAL, _0_5="0x30", _0_75="0+10x30", inf="0+10x30", count="0+10x30"),
        (
            fires(
                "LlmTraceRetrievalSlow",
                "warning",
                "Retrieval for m is slow.",
                "The p95 of retrieval is 737.5ms in the last 10m; more than 0.5 s is slow. "
                "The engine has not seen these requests yet.",
                gen_ai_request_model="m",
                llm_trace_phase="retrieval",
            ),
        ),
    ),
    Case(
        "One slow retrieval wakes nobody",
        "LlmTraceRetrievalSlow",
        20,
        took(s.RETRIEVAL, _0_5="0x30", _0_75="0x10 1x20", inf="0x10 1x20", count="0x10 1x20"),
    ),
    Case(
        "A slow prefill is no slow retrieval",
        "LlmTraceRetrievalSlow",
        20,
        (
            *took(s.RETRIEVAL, _0_25="0+10x30", inf="0+10x30", count="0+10x30"),
            *took(s.PREFILL, _0_5="0x30", _0_75="0+10x30", inf="0+10x30", count="0+10x30"),
        ),
    ),
)

DELIVERY = (
    Case(
        "A first token that takes half a second to the client is slow",
        "LlmTraceDeliverySlow",
        20,
        took(s.FIRST_TOKEN, _0_25="0x30", _0_5="0+10x30", inf="0+10x30", count="0+10x30"),
        (
            fires(
                "LlmTraceDeliverySlow",
                "warning",
                "First tokens of m are ready and do not reach the client.",
                "The p95 from the engine's first token to the client's is 487.5ms in the last 10m; "
                "more than 0.25 s is slow. The engine has done its work by then.",
                gen_ai_request_model="m",
                llm_trace_phase="first_token",
            ),
        ),
    ),
    Case(
        "A first token that is sent at once is quiet",
        "LlmTraceDeliverySlow",
        20,
        took(s.FIRST_TOKEN, _0_005="0+10x30", inf="0+10x30", count="0+10x30"),
    ),
)


def lag(late, ticks):
    """Build the seconds a minute for which a loop was blocked, and its timer's runs a minute."""
    return ours(s.EVENT_LOOP_LAG, late, "sum"), ours(s.EVENT_LOOP_LAG, ticks, "count")


LOOP = (
    Case(
        "A loop that is blocked for a quarter of each minute holds everybody up",
        "LlmTraceEventLoopBlocked",
        20,
        lag("0+15x30", "0+900x30"),
        (
            fires(
                "LlmTraceEventLoopBlocked",
                "warning",
                "The event loop of app:8000 is blocked.",
                "25% of the last 10m it ran something else than what was due: every request of "
                "the process waits for that, before the engine and after it, and the engine looks "
                "slow.",
                **APP,
            ),
        ),
    ),
    Case(
        "Timers that are a millisecond late are quiet: loops round them",
        "LlmTraceEventLoopBlocked",
        20,
        lag("0+1.2x30", "0+1180x30"),
    ),
    Case(
        "One long block, such as a model that was loaded, is quiet",
        "LlmTraceEventLoopBlocked",
        20,
        lag("0x10 20x20", "0+1200x30"),
    ),
)

UNSPLIT = (phase("0+8x30", s.ENGINE, "1"), phase("0+2x30", s.ADMISSION, "1"))

JOIN = (
    Case(
        "A wait that nobody splits while vLLM serves means that the join is silent",
        "LlmTraceEngineJoinSilent",
        20,
        (*UNSPLIT, theirs(vllm.FINISHED, "0+5x30", finished_reason="stop")),
        (
            fires(
                "LlmTraceEngineJoinSilent",
                "warning",
                "The wait of m is not split, though vLLM serves.",
                "80% of the time to first token of m is `engine` or `unattributed` in the last "
                "10m: vLLM's own moments do not reach the ledger.",
                gen_ai_request_model="m",
            ),
        ),
    ),
    Case(
        "The same wait without any vLLM is quiet: that engine gives no moments",
        "LlmTraceEngineJoinSilent",
        20,
        UNSPLIT,
    ),
)


def dropped(number):
    """Build the alert for dropped spans."""
    return fires(
        "LlmTraceSpansDropped",
        "warning",
        "app:8000 drops spans.",
        f"Spans that were made and never exported in the last 10m: {number}, reason: queue_full. "
        "Metrics are complete, traces are not.",
        llm_trace_reason="queue_full",
        **APP,
    )


SPANS = (
    Case(
        "Spans that go on being dropped are counted over the window",
        "LlmTraceSpansDropped",
        25,
        (ours(s.SPANS_DROPPED, "0+2x30", llm_trace_reason="queue_full"),),
        (dropped("20"),),
    ),
    Case(
        "The very first drops, which make a new series, are counted too",
        "LlmTraceSpansDropped",
        25,
        (ours(s.SPANS_DROPPED, "_x20 5x10", llm_trace_reason="queue_full"),),
        (dropped("5"),),
    ),
    Case(
        "Spans that were dropped long ago are quiet",
        "LlmTraceSpansDropped",
        25,
        (
            ours(s.SPANS_DROPPED, "5x30", llm_trace_reason="queue_full"),
            ours(s.SPANS_DROPPED, "0x30", llm_trace_reason="none"),
        ),
    ),
    Case(
        "A process that begins anew, and drops its first, is told",
        "LlmTraceSpansDropped",
        25,
        (ours(s.SPANS_DROPPED, "9x8 _x11 5x10", llm_trace_reason="queue_full"),),
        (dropped("5"),),
    ),
    Case(
        "They stay quiet when a scrape comes again after some minutes without one",
        "LlmTraceSpansDropped",
        25,
        (ours(s.SPANS_DROPPED, "5x8 _x9 5x20", llm_trace_reason="queue_full"),),
    ),
)

ERRORS = (
    Case(
        "A contained fault is told with its place",
        "LlmTraceInternalErrors",
        25,
        (ours(s.ERRORS_INTERNAL, "_x20 1x10", llm_trace_reason="SpanObserver"),),
        (
            fires(
                "LlmTraceInternalErrors",
                "warning",
                "llm_trace fails inside app:8000.",
                "Faults of llm_trace contained in the last 10m: 1, in SpanObserver. "
                "Requests are not harmed; some telemetry is missing.",
                llm_trace_reason="SpanObserver",
                **APP,
            ),
        ),
    ),
    Case(
        "No fault is quiet",
        "LlmTraceInternalErrors",
        25,
        (ours(s.ERRORS_INTERNAL, "0x30", llm_trace_reason="none"),),
    ),
)

CASES = (*RETRIEVAL, *DELIVERY, *LOOP, *JOIN, *SPANS, *ERRORS)
