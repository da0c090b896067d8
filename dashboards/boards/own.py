"""llm_trace itself: whether what the other boards say can be trusted."""

from __future__ import annotations

from typing import Final

from dashboards import colours
from dashboards import panels as p
from dashboards import phases as ph
from dashboards import queries as q
from llm_trace import semconv as s

UNSPLIT: Final = (s.ENGINE, s.UNATTRIBUTED)


def _split() -> str:
    seconds = q.increase(q.shown(s.TTFT_PHASE, q.none_of(q.PHASE, *UNSPLIT)), q.WHOLE)
    return q.ratio(q.total(seconds), q.total(q.increase(q.shown(s.TTFT_PHASE), q.WHOLE)))


def _grown(metric: s.Metric) -> p.Query:
    expr = q.total(q.increase(q.shown(metric)), q.REASON)
    return p.Query(expr, "{{" + q.REASON + "}}")


LOSSES: Final = p.Row(
    "Is anything lost?",
    (
        p.stack(
            "Internal errors",
            "Faults of llm_trace that were contained, in each interval, by the place of the fault. "
            "Requests are not harmed.",
            p.COUNT,
            _grown(s.ERRORS_INTERNAL),
            width=8,
        ),
        p.stack(
            "Spans dropped",
            "Spans that were made and never exported, in each interval, by reason.",
            p.COUNT,
            _grown(s.SPANS_DROPPED),
            width=8,
        ),
        p.stack(
            "Samples refused",
            "Measurements that a bound or a rule refused, in each interval, by reason.",
            p.COUNT,
            _grown(s.SAMPLES_DROPPED),
            width=8,
        ),
    ),
)

EVIDENCE: Final = p.Row(
    "Is the wait explained?",
    (
        p.stack(
            "TTFT without a split",
            "unattributed: nobody said what happened; engine: an engine was busy and gave no "
            "moments of its own. Both are shown and never guessed.",
            p.SHARE,
            ph.asked(ph.shares(q.one_of(q.PHASE, *UNSPLIT))),
            width=16,
            colours=colours.PHASES,
        ),
        p.number(
            "TTFT with a split",
            "Share of all time before first tokens that has a name, over all that is shown.",
            p.SHARE,
            p.Query(_split(), "split"),
            width=8,
        ),
        p.stack(
            "Joined engines, by how much they tell",
            "engine-events: every moment of vLLM's own; the others tell less. None: no engine in "
            "this process, as in an app in front of one.",
            p.COUNT,
            p.Query(q.total(q.shown(s.ENGINE_INFO), q.TIER), "{{" + q.TIER + "}}"),
        ),
        p.lines(
            "Engines on another clock",
            "Joined engines whose stamps are of another host's clock: they were moved to ours, and "
            "where a queue ends and prefill begins is less exact.",
            p.COUNT,
            p.Query(q.total(q.shown(s.ENGINE_FOREIGN_CLOCK), "instance"), "{{instance}}"),
        ),
        p.lines(
            "Requests recorded",
            "Finished requests a second that llm_trace recorded, by scrape target.",
            p.REQUESTS_PER_SECOND,
            p.Query(q.total(q.rate(q.shown(s.REQUESTS)), "instance"), "{{instance}}"),
            width=24,
        ),
    ),
)

BOARD: Final = p.Board(
    "llm-trace-own",
    "LLM: llm_trace itself",
    "What llm_trace lost and what it could not explain.",
    f"label_values({q.select(s.TTFT_OR_END, part='count')}, {q.MODEL})",
    (LOSSES, EVIDENCE),
)
