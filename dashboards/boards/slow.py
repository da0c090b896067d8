"""Slow requests: one trace of each kind of trouble, a click from its waterfall."""

from __future__ import annotations

from typing import Final

from dashboards import colours, knobs, rules
from dashboards import panels as p
from dashboards import queries as q
from dashboards import traceql as t
from llm_trace import semconv as s

WATERFALL: Final = "A click on a row's id opens the waterfall."


def _count(title: str, description: str, requests: str) -> p.Panel:
    grown = q.increase(requests, q.WHOLE)
    every = q.increase(q.shown(s.REQUESTS), q.WHOLE)
    counted = f"round({q.or_zero(q.total(grown), q.total(every))})"
    number = p.number(title, description, p.COUNT, p.Query(counted, title.lower()))
    return number._replace(height=p.SHORT)


def _ended(*outcomes: str) -> str:
    return q.shown(s.REQUESTS, q.one_of(q.OUTCOME, *outcomes))


def _cold() -> str:
    return q.shown(s.TIME_TO_FIRST_TOKEN, q.equal(q.START_STATE, "cold"), part="count")


HOW_MANY: Final = p.Row(
    "How many?",
    (
        _count(
            "Slow",
            f"Requests whose first token took more than {knobs.TTFT_SECONDS:g} s, over all that is "
            "shown. Counted by metrics, which miss no request; a table has the traces that were "
            "kept.",
            q.shown(s.TTFT_REQUESTS, rules.SLOW),
        ),
        _count(
            "Failed",
            f"Requests that ended in {', '.join(knobs.BAD_OUTCOMES)}.",
            _ended(*knobs.BAD_OUTCOMES),
        ),
        _count("Cancelled", "Requests whose client left.", _ended("cancelled")),
        _count("Cold", "First tokens that waited for a load, wake or compile.", _cold()),
    ),
)


def _verdicts() -> str:
    counted = q.increase(q.shown(s.VERDICTS_COUNTED, rules.SLOW), q.WHOLE)
    return f"{q.total(counted, q.VERDICT)} > 0"


WHY: Final = p.Row(
    "Why?",
    (
        p.bars(
            "What slow requests waited for",
            f"Verdicts on requests that waited more than {knobs.TTFT_SECONDS:g} s for the first "
            "token, or for the end without one, over all that is shown. Each trace has its own, "
            "with its numbers and the next check.",
            p.COUNT,
            p.Query(_verdicts(), f"{{{{{q.VERDICT}}}}}"),
        ),
        p.lines(
            "Times above the floor",
            "Means of measured over least possible time, an estimate: up to 3 the device does "
            "what it can; under 1 the settings are wrong. Only where device and model are known.",
            p.COUNT,
            p.Query(q.mean(s.PREFILL_RATIO), s.PREFILL),
            p.Query(q.mean(s.DECODE_RATIO), s.DECODE),
            colours=colours.PHASES,
        ),
    ),
)

SLOW_ONES: Final = p.Row(
    "Slow",
    (
        p.traces(
            "Slow requests, and what each waited for",
            f"Recent traces whose TTFT was above {knobs.TTFT_SECONDS:g} s, with their verdicts "
            f"and parts. {WATERFALL}",
            t.find(t.SLOW, t.CHOSEN, show=(s.TTFT, s.VERDICT, *t.PARTS, s.START_STATE, s.OUTCOME)),
        ),
        p.traces(
            "Slow because they queued",
            f"Of those, the ones that waited for a slot longer than {knobs.TTFT_SECONDS / 2:g} s: "
            f"prefill had not begun. {WATERFALL}",
            t.find(
                t.SLOW,
                t.CHOSEN,
                t.above(f"{s.TTFT_PHASE_PREFIX}{s.QUEUE_WAIT}", knobs.TTFT_SECONDS / 2),
                show=(s.TTFT, f"{s.TTFT_PHASE_PREFIX}{s.QUEUE_WAIT}", s.PREEMPTIONS),
            ),
        ),
        p.traces(
            "Slow because of prefill",
            f"Of those, the ones that computed their prompt for longer than "
            f"{knobs.TTFT_SECONDS / 2:g} s. {WATERFALL}",
            t.find(
                t.SLOW,
                t.CHOSEN,
                t.above(f"{s.TTFT_PHASE_PREFIX}{s.PREFILL}", knobs.TTFT_SECONDS / 2),
                show=(
                    s.TTFT,
                    f"{s.TTFT_PHASE_PREFIX}{s.PREFILL}",
                    s.USAGE_INPUT_TOKENS,
                    s.USAGE_CACHED_TOKENS,
                ),
            ),
        ),
    ),
)

BROKEN: Final = p.Row(
    "Failed and given up",
    (
        p.traces(
            "Failed requests",
            "Recent traces that ended badly, of every model: a request may fail before its model "
            f"is known. {WATERFALL}",
            t.find(
                t.one_of(s.OUTCOME, *knobs.BAD_OUTCOMES),
                show=(s.OUTCOME, s.LAST_PHASE, s.ERROR_TYPE, s.REQUEST_MODEL),
            ),
        ),
        p.traces(
            "Cancelled requests",
            "Recent traces whose client left, with the phase in which it did; a time to first "
            f"token is there if one was sent. {WATERFALL}",
            t.find(
                t.equal(s.OUTCOME, "cancelled"),
                t.CHOSEN,
                show=(s.LAST_PHASE, s.TTFT, s.REQUEST_MODEL),
            ),
        ),
    ),
)

COLD: Final = p.Row(
    "Cold",
    (
        p.traces(
            "Cold requests",
            f"Recent traces that waited for a load, wake or compile. {WATERFALL}",
            t.find(
                t.equal(s.START_STATE, "cold"),
                t.CHOSEN,
                show=(s.TTFT, f"{s.TTFT_PHASE_PREFIX}{s.MODEL_LOAD}", s.OUTCOME, s.REQUEST_MODEL),
            ),
        ),
    ),
)

BOARD: Final = p.Board(
    "llm-trace-slow",
    "LLM: slow requests",
    "Traces to open: slow, failed, cancelled and cold requests.",
    f"label_values({q.select(s.TTFT_OR_END, part='count')}, {q.MODEL})",
    (HOW_MANY, WHY, SLOW_ONES, BROKEN, COLD),
)
