"""Alerts, as a table: what fires, how bad it is, what it says, and which phase it is about.

Every alert has a runbook of the same name.
"""

from __future__ import annotations

from typing import Any, Final

from dashboards import burns, dcgm, gpus, knobs, rules, vllm
from dashboards import queries as q
from dashboards.alert import ENGINE, MODEL, NUMBER, SECONDS, SHARE, Alert, text_of
from llm_trace import semconv as s
from llm_trace.asgi.ticker import INTERVAL

# --- the engine -------------------------------------------------------------------------------

BY_ENGINE: Final = ("instance", vllm.MODEL)
RUNNING: Final = q.total(q.average(vllm.RUNNING, knobs.HOLD), *BY_ENGINE)


def _per_running(expr: str) -> str:
    """For each running request; an engine that runs none counts as running one."""
    return f"{expr} / clamp_min({RUNNING}, 1)"


def _cold_wave() -> str:
    where = q.equal(q.START_STATE, "cold")
    cold = q.total(q.increase(q.select(s.TIME_TO_FIRST_TOKEN, where, part="count"), _W), q.MODEL)
    every = q.total(q.increase(q.select(s.TIME_TO_FIRST_TOKEN, part="count"), _W), q.MODEL)
    return f"{q.ratio(cold, every)} > {knobs.COLD_SHARE} and {cold} >= {knobs.COLD_REQUESTS}"


def _cache_collapse() -> str:
    now, before = (rules.cached_tokens(w) for w in (knobs.CACHE_WINDOW, knobs.CACHE_BASELINE))
    enough = q.at_least(knobs.ENOUGH, q.select(s.REQUESTS), knobs.CACHE_WINDOW)
    low = f"{now} < {knobs.CACHE_COLLAPSE} * {before}"
    return f"{low} and {before} > {knobs.CACHE_MINIMUM} {enough}"


def _slow(phase: str, seconds: float) -> str:
    where = (q.equal(q.PHASE, phase),)
    took = q.quantile_of(
        knobs.SLOW_QUANTILE, s.PHASE_DURATION, q.MODEL, q.PHASE, window=_W, where=where
    )
    every = q.select(s.PHASE_DURATION, *where, part="count")
    return f"({took}) > {seconds:g} {q.at_least(knobs.ENOUGH, every, _W)}"


def _blocked() -> str:
    late, ticks = (
        q.total(q.rate(q.select(s.EVENT_LOOP_LAG, part=part), _W), "job", "instance")
        for part in ("sum", "count")
    )
    return q.part_of(late, f"{INTERVAL} * {ticks}")


def _silent_join() -> str:
    """TTFT that nobody splits, while a vLLM that could split it finishes requests."""
    unsplit = q.one_of(q.PHASE, s.ENGINE, s.UNATTRIBUTED)
    part = q.total(q.rate(q.select(s.TTFT_PHASE, unsplit), _W), q.MODEL)
    whole = q.total(q.rate(q.select(s.TTFT_PHASE), _W), q.MODEL)
    serving = q.total(q.rate(vllm.FINISHED, _W))
    return f"{q.ratio(part, whole)} > {knobs.UNSPLIT_SHARE} and on () {serving} > 0"


def _throttled(reason: str, series: dcgm.Series) -> str:
    share = gpus.throttled(series, knobs.HOLD)
    clock = q.greatest(q.average(dcgm.CLOCK.name, knobs.HOLD), *gpus.ONE)
    best = q.greatest(q.highest(dcgm.CLOCK.name, knobs.THROTTLED_BASELINE), *gpus.ONE)
    slower = f"({clock} < {knobs.THROTTLED_CLOCK} * ({best} < {dcgm.NO_GAUGE}))"
    held = f"({share} > {knobs.THROTTLED_SHARE} and {slower})"
    return f'label_replace({held}, "{gpus.REASON}", "{reason}", "", "")'


_W: Final = knobs.WINDOW

P: Final = f"p{knobs.SLOW_QUANTILE * 100:g}"

ALERTS: Final = (
    *burns.ALERTS,
    Alert(
        "LlmTraceEngineQueueSaturated",
        "warning",
        f"{_per_running(q.total(q.average(vllm.WAITING, knobs.HOLD), *BY_ENGINE))}"
        f" > {knobs.QUEUE_PER_RUNNING}",
        f"The queue of {ENGINE} on {text_of('instance')} is full.",
        f"Waiting requests for each one that runs: {NUMBER}, and so for {knobs.HOLD}. "
        "Prefill is not the cause: nothing that waits has reached it.",
        hold=knobs.HOLD,
        labels={q.PHASE: s.QUEUE_WAIT},
    ),
    Alert(
        "LlmTracePreemptionStorm",
        "warning",
        f"{_per_running(f'60 * {q.total(q.rate(vllm.PREEMPTIONS, _W), *BY_ENGINE)}')}"
        f" > {knobs.PREEMPTIONS_PER_MINUTE}",
        f"{ENGINE} on {text_of('instance')} throws requests out of its batch.",
        f"Preemptions a minute for each running request: {NUMBER}. The KV cache is too small for "
        "what runs at once, and preempted prompts are computed again.",
        hold=knobs.HOLD,
    ),
    Alert(
        "LlmTraceGpuThrottled",
        "warning",
        f"{_throttled('heat', dcgm.THERMAL_VIOLATION)} or "
        f"{_throttled('power', dcgm.POWER_VIOLATION)}",
        f"GPU {text_of(dcgm.GPU)} of {text_of(dcgm.HOST)} is slowed by {text_of(gpus.REASON)}.",
        f"{SHARE} of the last {knobs.HOLD} it was held back by {text_of(gpus.REASON)}, and its "
        f"clock is below {knobs.THROTTLED_CLOCK:.0%} of its best in {knobs.THROTTLED_BASELINE}. "
        "Prefill is slower for it; a queue that was there before is not.",
        hold=knobs.HOLD,
        labels={q.PHASE: s.PREFILL},
    ),
    Alert(
        "LlmTraceColdStartWave",
        "warning",
        _cold_wave(),
        f"Many first tokens of {MODEL} pay for a cold start.",
        f"{SHARE} of the first tokens of {MODEL} in the last {_W} waited for a load, wake or "
        "compile.",
        labels={q.START_STATE: "cold"},
    ),
    Alert(
        "LlmTraceCacheHitCollapse",
        "warning",
        _cache_collapse(),
        f"The prefix cache of {MODEL} has stopped to help.",
        f"{SHARE} of the prompt tokens of {MODEL} came from the cache in the last "
        f"{knobs.CACHE_WINDOW}, less than {knobs.CACHE_COLLAPSE:g} of what it was over the last "
        f"{knobs.CACHE_BASELINE}: "
        "prefill computes what it used to read.",
        labels={q.PHASE: s.PREFILL},
        hold=knobs.HOLD,
    ),
    Alert(
        "LlmTraceRetrievalSlow",
        "warning",
        _slow(s.RETRIEVAL, knobs.RETRIEVAL_SECONDS),
        f"Retrieval for {MODEL} is slow.",
        f"The {P} of retrieval is {SECONDS} in the last {_W}; more than "
        f"{knobs.RETRIEVAL_SECONDS:g} s is slow. The engine has not seen these requests yet.",
        hold=knobs.HOLD,
    ),
    Alert(
        "LlmTraceDeliverySlow",
        "warning",
        _slow(s.FIRST_TOKEN, knobs.DELIVERY_SECONDS),
        f"First tokens of {MODEL} are ready and do not reach the client.",
        f"The {P} from the engine's first token to the client's is {SECONDS} in the last {_W}; "
        f"more than {knobs.DELIVERY_SECONDS:g} s is slow. The engine has done its work by then.",
        hold=knobs.HOLD,
    ),
    Alert(
        "LlmTraceEventLoopBlocked",
        "warning",
        f"{_blocked()} > {knobs.LOOP_BLOCKED_SHARE}",
        f"The event loop of {text_of('instance')} is blocked.",
        f"{SHARE} of the last {_W} it ran something else than what was due: every request of the "
        "process waits for that, before the engine and after it, and the engine looks slow.",
        hold=knobs.HOLD,
    ),
    Alert(
        "LlmTraceEngineJoinSilent",
        "warning",
        _silent_join(),
        f"The wait of {MODEL} is not split, though vLLM serves.",
        f"{SHARE} of the time to first token of {MODEL} is `{s.ENGINE}` or `{s.UNATTRIBUTED}` in "
        f"the last {_W}: vLLM's own moments do not reach the ledger.",
        hold=knobs.HOLD,
    ),
    Alert(
        "LlmTraceSpansDropped",
        "warning",
        f"{q.grew(s.SPANS_DROPPED, _W, 'job', 'instance', q.REASON)} > 0",
        f"{text_of('instance')} drops spans.",
        f"Spans that were made and never exported in the last {_W}: {NUMBER}, reason: "
        f"{text_of(q.REASON)}. Metrics are complete, traces are not.",
    ),
    Alert(
        "LlmTraceInternalErrors",
        "warning",
        f"{q.grew(s.ERRORS_INTERNAL, _W, 'job', 'instance', q.REASON)} > 0",
        f"llm_trace fails inside {text_of('instance')}.",
        f"Faults of llm_trace contained in the last {_W}: {NUMBER}, in {text_of(q.REASON)}. "
        "Requests are not harmed; some telemetry is missing.",
    ),
)


def _rule(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expr,
        **({"for": alert.hold} if alert.hold else {}),
        "labels": {"severity": alert.severity, **alert.labels},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook_url": knobs.RUNBOOK_URL.format(alert.name),
        },
    }


def groups() -> dict[str, Any]:
    """The alerts as a Prometheus rule file."""
    return {"groups": [{"name": "llm_trace.alerts", "rules": [_rule(each) for each in ALERTS]}]}
