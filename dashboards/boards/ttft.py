"""TTFT decomposition: which wait grew, for whom, since when, and a trace of it."""

from __future__ import annotations

from typing import Final

from dashboards import colours, knobs, rules
from dashboards import panels as p
from dashboards import phases as ph
from dashboards import queries as q
from dashboards import traceql as t
from llm_trace import semconv as s

EXPLAINED: Final = (
    "The phases are parts of one ledger: they add up to the whole. "
    "queue_wait is waiting for a slot, prefill is computing the prompt, first_token is delivery."
)


# --- what outcomes and caches are made of -----------------------------------------------------


def _good_share() -> str:
    good = q.increase(q.shown(s.TTFT_OR_END, q.within(knobs.TTFT_SECONDS), part="bucket"), q.WHOLE)
    every = q.increase(q.shown(s.TTFT_OR_END, part="count"), q.WHOLE)
    return q.ratio(q.total(good), q.total(every))


def _burn() -> str:
    """How many times faster than allowed the budget is used, of the model that is worst off."""
    miss = f'{rules.ttft_miss(knobs.BURNS[0].long)}{{{q.MODEL}=~"$model"}}'
    return f"{q.greatest(miss)} / {1 - knobs.TTFT_OBJECTIVE:.3g}"


def _tokens(metric: s.Metric, window: str = q.STEP) -> str:
    return q.total(q.rate(q.shown(metric), window))


def _cached() -> str:
    every = _tokens(s.USAGE_INPUT)
    return q.ratio(q.or_zero(_tokens(s.USAGE_CACHED), every), every)


def _prompt_length() -> str:
    return q.ratio(_tokens(s.USAGE_INPUT), q.total(q.rate(q.shown(s.REQUESTS))))


def _starts(part: str, metric: s.Metric = s.TIME_TO_FIRST_TOKEN) -> str:
    return q.total(q.rate(q.shown(metric, part=part)), q.START_STATE)


def _mean_start(metric: s.Metric) -> str:
    return q.ratio(_starts("sum", metric), _starts("count", metric))


def _live_where_expected() -> str:
    expected = _starts("count", s.EXPECTED_TIME_TO_FIRST_TOKEN)
    return f"{_mean_start(s.TIME_TO_FIRST_TOKEN)} and on ({q.START_STATE}) ({expected} > 0)"


# --- the board --------------------------------------------------------------------------------

SLOW_TEXT: Final = f"of the requests whose TTFT was above {knobs.TTFT_SECONDS:g} s"

IS_IT_SLOW: Final = p.Row(
    "Is it slow?",
    (
        p.latency(
            "Time to first token",
            "From a request's arrival to the first token sent to the client, against the "
            "objective. The dots are sample traces.",
            s.TIME_TO_FIRST_TOKEN,
            under=knobs.TTFT_SECONDS,
        ),
        p.number(
            "Within the objective",
            f"Share of streamed requests that had a token within {knobs.TTFT_SECONDS:g} s, over "
            f"all that is shown. The objective is {knobs.TTFT_OBJECTIVE:.4g}; given up requests "
            "count by how long they waited.",
            p.SHARE,
            p.Query(_good_share(), "good"),
        ),
        p.number(
            "Budget burn, last hour",
            "How many times faster than allowed the TTFT budget is used, for the model that is "
            "worst off: 1 lasts the month, 14 is an incident.",
            p.COUNT,
            p.Query(_burn(), "times"),
        ),
    ),
)

WHICH_WAIT: Final = p.Row(
    "Which wait?",
    (
        p.stack(
            "Mean TTFT by phase",
            f"What the mean time to first token is made of. {EXPLAINED}",
            p.SECONDS,
            ph.asked(ph.mean()),
            colours=colours.PHASES,
        ),
        p.stack(
            "Mean TTFT by phase, slow requests only",
            f"What the tail is made of: the same, {SLOW_TEXT}. A slow prefill and a full queue "
            "look alike in a quantile and differ here.",
            p.SECONDS,
            ph.asked(ph.mean(rules.SLOW)),
            colours=colours.PHASES,
        ),
        p.stack(
            "Share of each phase",
            "Each phase's part of all the time that was spent before first tokens.",
            p.SHARE,
            ph.asked(ph.shares()),
            colours=colours.PHASES,
        )._replace(height=p.TALLEST, most=1),
        p.bars(
            "What changed",
            "Mean seconds of TTFT in each phase over what is shown, less those of the same "
            "stretch of time before it. The longest bar is the wait that grew.",
            p.SECONDS,
            ph.asked(ph.change()),
            colours=colours.PHASES,
        )._replace(height=p.TALLEST),
        p.stack(
            "Requests in each phase now",
            "Requests in flight, by the phase that each is in.",
            p.COUNT,
            ph.asked(q.total(q.shown(s.REQUESTS_ACTIVE), q.PHASE)),
            width=8,
            colours=colours.PHASES,
        )._replace(height=p.TALLER),
        p.lines(
            "Oldest waiting request",
            "Age of the oldest request that an engine has and has not begun, by scrape target. It "
            "climbs while a queue stands still, before any quantile of finished requests does.",
            p.SECONDS,
            p.Query(q.greatest(q.shown(s.ENGINE_OLDEST_WAITING), "instance"), "{{instance}}"),
            width=8,
        )._replace(height=p.TALLER),
        p.lines(
            "p95 of each phase",
            "The 95th percentile of the time spent in each phase. These do not add up.",
            p.SECONDS,
            ph.asked(q.quantile(0.95, s.PHASE_DURATION, q.PHASE), exemplar=True),
            width=8,
            colours=colours.PHASES,
        )._replace(height=p.TALLER),
    ),
)

HOW_SPREAD: Final = p.Row(
    "How is it spread?",
    (
        p.heat("TTFT", "Requests by time to first token.", s.TIME_TO_FIRST_TOKEN),
        p.heat(
            "Waiting for a slot",
            "Requests by the time from the hand-off to the engine until it first ran them.",
            s.PHASE_DURATION,
            q.equal(q.PHASE, s.QUEUE_WAIT),
        ),
        p.heat(
            "Prefill",
            "Requests by the time that the engine took from the first step to the first token.",
            s.PHASE_DURATION,
            q.equal(q.PHASE, s.PREFILL),
        ),
    ),
)

FOR_WHOM: Final = p.Row(
    "For whom?",
    (
        p.lines(
            "p95 TTFT by model",
            "The 95th percentile of the time to first token, for each served model.",
            p.SECONDS,
            p.Query(
                q.quantile(0.95, s.TIME_TO_FIRST_TOKEN, q.MODEL),
                "{{" + q.MODEL + "}}",
                exemplar=True,
            ),
            width=8,
        ),
        p.lines(
            "Mean TTFT, cold, warm and cached",
            "The mean time to first token by what the engine had ready: nothing (cold), the model "
            "(warm), part of the prompt (partial) or most of it (cached).",
            p.SECONDS,
            p.Query(_mean_start(s.TIME_TO_FIRST_TOKEN), "{{" + q.START_STATE + "}}"),
            width=8,
            colours=colours.START_STATES,
        ),
        p.lines(
            "Mean TTFT, live and expected",
            "The mean time to first token over what a benchmark of this server measured for "
            "prompts of these lengths, as much of them cached. Needs the setting `benchmark`; a "
            "gap between the two is load, or an engine that became slower.",
            p.SECONDS,
            p.Query(_live_where_expected(), "live, {{" + q.START_STATE + "}}"),
            p.Query(
                _mean_start(s.EXPECTED_TIME_TO_FIRST_TOKEN),
                "expected, {{" + q.START_STATE + "}}",
            ),
            width=8,
        ),
        p.stack(
            "First tokens, cold, warm and cached",
            "First tokens a second by what the engine had ready.",
            p.REQUESTS_PER_SECOND,
            p.Query(_starts("count"), "{{" + q.START_STATE + "}}"),
            width=8,
            colours=colours.START_STATES,
        ),
        p.lines(
            "Cache share of prompt tokens",
            "Prompt tokens that were read from the prefix cache, of all prompt tokens.",
            p.SHARE,
            p.Query(_cached(), "cached"),
            width=8,
        ),
        p.lines(
            "Prompt length",
            "Mean prompt tokens of a request, cached ones included. Longer prompts make a longer "
            "prefill without any fault of the engine.",
            p.COUNT,
            p.Query(_prompt_length(), "tokens"),
            width=8,
        ),
    ),
)

WHO_GAVE_UP: Final = p.Row(
    "Who gave up?",
    (
        p.stack(
            "Outcomes",
            "Finished requests a second by how they ended.",
            p.REQUESTS_PER_SECOND,
            p.Query(q.total(q.rate(q.shown(s.REQUESTS)), q.OUTCOME), "{{" + q.OUTCOME + "}}"),
            colours=colours.OUTCOMES,
        ),
        p.stack(
            "Cancelled, by the phase they left in",
            "Clients that left, a second. Those who leave in queue_wait never show in TTFT.",
            p.REQUESTS_PER_SECOND,
            p.Query(
                q.total(q.rate(q.shown(s.REQUESTS, q.equal(q.OUTCOME, "cancelled"))), q.LAST_PHASE),
                "{{" + q.LAST_PHASE + "}}",
            ),
            colours=colours.PHASES,
        ),
        p.lines(
            "TTFT of survivors, and of everybody",
            "p95 of the time to first token, beside that of the time to the first token or to the "
            "end without one. Where the second is above the first, waiting makes clients give up.",
            p.SECONDS,
            p.Query(q.quantile(0.95, s.TIME_TO_FIRST_TOKEN), "survivors", exemplar=True),
            p.Query(q.quantile(0.95, s.TTFT_OR_END), "everybody", exemplar=True),
        ),
        p.lines(
            "Prompt tokens computed for nobody",
            "Prompt tokens a second that the engine computed for requests that ended without a "
            "token: work that gave up clients leave behind, while others wait.",
            p.PER_SECOND,
            p.Query(q.or_zero(_tokens(s.USAGE_WASTED), _tokens(s.USAGE_INPUT)), "tokens"),
        ),
    ),
)

SHOW_ME: Final = p.Row(
    "Show me one",
    (
        p.traces(
            "Slow requests",
            f"Recent traces {SLOW_TEXT}; a click opens the waterfall.",
            t.find(t.SLOW, show=(s.TTFT, s.OUTCOME, s.START_STATE, s.LAST_PHASE)),
        ),
    ),
)

BOARD: Final = p.Board(
    "llm-trace-ttft",
    "LLM: TTFT decomposition",
    "Which wait made the first token slow. A faster prefill kernel cannot fix a full queue.",
    f"label_values({q.select(s.TTFT_OR_END, part='count')}, {q.MODEL})",
    (IS_IT_SLOW, WHICH_WAIT, HOW_SPREAD, FOR_WHOM, WHO_GAVE_UP, SHOW_ME),
)
