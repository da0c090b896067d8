"""App and delivery: what happens before the engine has a request and after it has a token."""

from __future__ import annotations

from typing import Final

from dashboards import colours, knobs
from dashboards import panels as p
from dashboards import phases as ph
from dashboards import queries as q
from llm_trace import semconv as s
from llm_trace.asgi.ticker import INTERVAL

APP: Final = (s.ADMISSION, s.RETRIEVAL, s.MODEL_LOAD, s.PREPARE, s.GENERATION, s.OTHER)
"""Phases in which the app has the request."""


def _phase(title: str, description: str, phase: str) -> p.Panel:
    return p.latency(title, description, s.PHASE_DURATION, q.equal(q.PHASE, phase))


def _rejected() -> str:
    rejected = q.shown(s.REQUESTS, q.equal(q.OUTCOME, "rejected"))
    return q.or_zero(q.total(q.rate(rejected)), q.total(q.rate(q.shown(s.REQUESTS))))


BEFORE: Final = p.Row(
    "Before the engine",
    (
        _phase(
            "Admission",
            "From the arrival to the app's acceptance: the body, auth, limits, validation.",
            s.ADMISSION,
        ),
        _phase("Retrieval", "Fetching documents; parallel fetches count once.", s.RETRIEVAL),
        _phase(
            "Prepare",
            "The app's own time before the hand-off: prompt assembly, templates, tokenisation.",
            s.PREPARE,
        ),
        p.stack(
            "The app's share of TTFT",
            "The part of all time before first tokens that was spent in the app. What is left is "
            "the engine's and delivery's.",
            p.SHARE,
            ph.asked(ph.shares(q.one_of(q.PHASE, *APP))),
            colours=colours.PHASES,
        ),
        p.heat(
            "Retrieval, spread",
            "Requests by the time that retrieval took.",
            s.PHASE_DURATION,
            q.equal(q.PHASE, s.RETRIEVAL),
        ),
        p.stack(
            "Requests in the app now",
            "Requests in flight that the engine has not got yet.",
            p.COUNT,
            ph.asked(q.total(q.shown(s.REQUESTS_ACTIVE, q.one_of(q.PHASE, *APP)), q.PHASE)),
            width=8,
            colours=colours.PHASES,
        ),
        p.lines(
            "Rejected",
            "Requests a second that were refused before the engine had them.",
            p.REQUESTS_PER_SECOND,
            p.Query(_rejected(), "rejected"),
            width=8,
            colours=colours.OUTCOMES,
        ),
    ),
)

AFTER: Final = p.Row(
    "After the engine",
    (
        _phase(
            "First-token delivery",
            "From the engine's first token to the client's: detokenising, the event loop, "
            "middleware, a client that reads slowly.",
            s.FIRST_TOKEN,
        ),
        p.heat(
            "First-token delivery, spread",
            "Requests by the time that the first token took to reach the client.",
            s.PHASE_DURATION,
            q.equal(q.PHASE, s.FIRST_TOKEN),
            width=12,
        ),
        p.lines(
            "Gaps between chunks",
            "Time between streamed chunks that carry tokens; a chunk may hold several tokens. Far "
            "above the time per output token, delivery stalls. These samples carry no traces.",
            p.SECONDS,
            *p.quantiles(s.TIME_PER_OUTPUT_CHUNK),
            colours=colours.QUANTILES,
        ),
        p.latency(
            "Time per output token",
            "Mean time between the tokens of an answer after its first, one sample a request, "
            "against the objective.",
            s.TIME_PER_OUTPUT_TOKEN,
            under=knobs.TPOT_SECONDS,
        ),
        p.latency(
            "First answer",
            "From the arrival to the first token that is not reasoning.",
            s.TIME_TO_FIRST_ANSWER,
        ),
        p.latency(
            "Whole request",
            "From the arrival to the last byte.",
            s.REQUEST_DURATION,
        ),
    ),
)


def _blocked() -> str:
    late, ticks = (
        q.total(q.rate(q.shown(s.EVENT_LOOP_LAG, part=part)), "instance")
        for part in ("sum", "count")
    )
    return q.part_of(late, f"{INTERVAL} * {ticks}")


def _held(metric: s.Metric) -> str:
    """The share of the requests that were held back at all."""
    held, every = q.shown(metric, part="count"), q.shown(s.REQUEST_DURATION, part="count")
    return q.ratio(q.total(q.rate(held)), q.total(q.rate(every)))


BESIDE: Final = p.Row(
    "Neither the app nor the engine",
    (
        p.lines(
            "Event loop blocked",
            "Share of the time for which a loop ran something else than what was due. Up to 2 % "
            "is the rounding of its timer; above, synchronous calls hold every request up.",
            p.SHARE,
            p.Query(_blocked(), "{{instance}}"),
        ),
        p.heat(
            "Event-loop lag, spread",
            "How late the loop's timer ran, twenty times a second: the length of each block.",
            s.EVENT_LOOP_LAG,
            width=12,
        ),
        p.latency(
            "Edge",
            "From the proxy's X-Request-Start to the arrival here, by two clocks and outside of "
            "the ledger; no data where no proxy sets it.",
            s.EDGE_TIME,
        ),
        p.lines(
            "Held back by the client",
            "Share of the requests whose client did not read in time: before their first token, "
            "and at all.",
            p.SHARE,
            p.Query(_held(s.TTFT_SEND_WAIT_TIME), "before the first token"),
            p.Query(_held(s.SEND_WAIT_TIME), "at all"),
        ),
        p.latency(
            "First token held back by the client",
            "How long those waited for their client before the first token; in the ledger it is "
            "in first_token.",
            s.TTFT_SEND_WAIT_TIME,
        ),
        p.latency(
            "Answer held back by the client",
            "How long those waited for their client in all; in the ledger it is in decode.",
            s.SEND_WAIT_TIME,
        ),
    ),
)

BOARD: Final = p.Board(
    "llm-trace-delivery",
    "LLM: app and delivery",
    "What the app does before the engine, and what keeps tokens from the client after it.",
    f"label_values({q.select(s.TTFT_OR_END, part='count')}, {q.MODEL})",
    (BEFORE, AFTER, BESIDE),
)
