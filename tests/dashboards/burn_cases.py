"""Firing and quiet cases of the burn-rate alerts: who misses the objective, and who is blamed."""

from __future__ import annotations

from alert_series import Case, fires, ours, phase, requests

from llm_trace import semconv as s


def ttft(good, every):
    """Build the streamed requests of which some had a token within the objective."""
    return (
        ours(s.TTFT_OR_END, good, "bucket", le="1.0"),
        ours(s.TTFT_OR_END, every, "count"),
    )


def tpot(good, every):
    """Build the answers of which some were as quick per token as the objective."""
    return (
        ours(s.TIME_PER_OUTPUT_TOKEN, good, "bucket", le="0.1"),
        ours(s.TIME_PER_OUTPUT_TOKEN, every, "count"),
    )


def ttft_burns(severity, share, windows, blamed, **labels):
    """Build the TTFT burn of one severity."""
    short, long = windows
    return fires(
        "LlmTraceTtftBurn",
        severity,
        f"First tokens of m are late, mostly because of {blamed}.",
        f"{share} of the streamed requests of m waited longer than 1 s for a first token in the "
        f"last {short}; the objective allows 1%. What they waited for most in the last {long}: "
        f"{blamed}.",
        gen_ai_request_model="m",
        **labels,
    )


def tpot_burns(severity, share, short):
    """Build the burn of time per output token of one severity."""
    return fires(
        "LlmTraceTimePerOutputTokenBurn",
        severity,
        "Tokens of m come slowly after the first.",
        f"{share} of the answers of m took longer than 0.1 s per output token in the last {short}; "
        "the objective allows 1%.",
        gen_ai_request_model="m",
        llm_trace_phase="decode",
    )


def availability_burns(severity, share, windows, blamed):
    """Build the availability burn of one severity."""
    short, long = windows
    return fires(
        "LlmTraceAvailabilityBurn",
        severity,
        f"Requests for m fail, mostly in {blamed}.",
        f"{share} of the requests for m ended in error, timeout, truncated in the last {short}; "
        f"the objective allows 0.5%. Where most of them died in the last {long}: {blamed}.",
        gen_ai_request_model="m",
        llm_trace_phase=blamed,
    )


FAST, SLOW = ("5m", "1h"), ("30m", "6h")
QUEUE_IN_THE_TAIL = (
    phase("0+9x400", s.QUEUE_WAIT, "4"),
    phase("0+3x400", s.PREFILL, "4"),
    phase("0+100x400", s.PREFILL, "0.25"),
)

TTFT = (
    Case(
        "A bad hour after five good ones burns fast, and blames the tail's phase, not the bulk's",
        "LlmTraceTtftBurn",
        360,
        (*ttft("0+10x300 3007+7x60", "0+10x400"), *QUEUE_IN_THE_TAIL),
        (ttft_burns("critical", "30%", FAST, "queue_wait", llm_trace_phase="queue_wait"),),
    ),
    Case(
        "A tenth of late first tokens burns slowly",
        "LlmTraceTtftBurn",
        360,
        (*ttft("0+9x400", "0+10x400"), phase("0+2x400", s.RETRIEVAL, "2")),
        (ttft_burns("warning", "10%", SLOW, "retrieval", llm_trace_phase="retrieval"),),
    ),
    Case(
        "Where nobody lives to a first token, the phase in which they gave up is blamed",
        "LlmTraceTtftBurn",
        360,
        (
            *ttft("0+10x300 3000+0x60", "0+10x400"),
            requests("0x300 0+10x60", "cancelled", s.QUEUE_WAIT),
            requests("0x300 0+1x60", "cancelled", s.ADMISSION),
            requests("0x300 0+90x60", "ok", s.FINISH),
        ),
        (
            ttft_burns("critical", "100%", FAST, "queue_wait", llm_trace_phase="queue_wait"),
            ttft_burns("warning", "100%", SLOW, "queue_wait", llm_trace_phase="queue_wait"),
        ),
    ),
    Case(
        "A burn for which nobody can be blamed fires all the same",
        "LlmTraceTtftBurn",
        360,
        ttft("0+9x400", "0+10x400"),
        (ttft_burns("warning", "10%", SLOW, "no one phase"),),
    ),
    Case(
        "One late first token of two wakes nobody",
        "LlmTraceTtftBurn",
        360,
        ttft("0x350 1x20", "0x350 1x5 2x20"),
    ),
    Case(
        "A burst that is over is quiet",
        "LlmTraceTtftBurn",
        360,
        (*ttft("0+10x300 3000+0x20 3210+10x40", "0+10x400"), *QUEUE_IN_THE_TAIL),
    ),
)

TPOT = (
    Case(
        "Slow tokens burn their own budget",
        "LlmTraceTimePerOutputTokenBurn",
        360,
        tpot("0+6x400", "0+10x400"),
        (tpot_burns("critical", "40%", "5m"), tpot_burns("warning", "40%", "30m")),
    ),
    Case(
        "One slow answer in a hundred is quiet",
        "LlmTraceTimePerOutputTokenBurn",
        360,
        tpot("0+99x400", "0+100x400"),
    ),
)

AVAILABILITY = (
    Case(
        "Errors in prefill burn the budget of availability, and prefill is blamed",
        "LlmTraceAvailabilityBurn",
        360,
        (
            requests("0+80x400", "ok", s.FINISH),
            requests("0+15x400", "error", s.PREFILL),
            requests("0+5x400", "timeout", s.QUEUE_WAIT),
        ),
        (
            availability_burns("critical", "20%", FAST, "prefill"),
            availability_burns("warning", "20%", SLOW, "prefill"),
        ),
    ),
    Case(
        "Clients that leave and requests that are refused are no failures",
        "LlmTraceAvailabilityBurn",
        360,
        (
            requests("0+80x400", "ok", s.FINISH),
            requests("0+15x400", "cancelled", s.DECODE),
            requests("0+5x400", "rejected", s.ADMISSION),
        ),
    ),
)

CASES = (*TTFT, *TPOT, *AVAILABILITY)
