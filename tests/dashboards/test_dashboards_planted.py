"""A slowdown planted in each phase shows on the board in that phase, and alerts blame it."""

from __future__ import annotations

from itertools import repeat

import pytest
from board_files import QUERIES, rules
from board_prometheus import holding, vllm_pages
from board_traffic import Request, pages

from llm_trace import semconv as s

pytestmark = pytest.mark.services

PHASE = s.PHASE.replace(".", "_")
QUIET, BAD = 25, 16
"""Half minutes before the slowdown, and of it: the shown range and the one before it."""

PLANTED = {
    s.ADMISSION: Request(admission=3_000),
    s.RETRIEVAL: Request(retrieval=3_000),
    s.MODEL_LOAD: Request(load=3_000),
    s.PREPARE: Request(prepare=3_000),
    s.QUEUE_WAIT: Request(queue=3_000),
    s.PREFILL: Request(prefill=3_000),
    s.FIRST_TOKEN: Request(first_token=3_000),
    s.ENGINE: Request(split=False, prefill=3_000),
}
ALSO = {
    s.RETRIEVAL: "LlmTraceRetrievalSlow",
    s.MODEL_LOAD: "LlmTraceColdStartWave",
    s.FIRST_TOKEN: "LlmTraceDeliverySlow",
    s.ENGINE: "LlmTraceEngineJoinSilent",
}
"""The alerts of their own that some phases have."""


@pytest.fixture(scope="module", params=PLANTED)
def planted(request, prometheus_programs, tmp_path_factory):
    """The phase that got slow, and a Prometheus that scraped the app before and after."""
    slow = PLANTED[request.param]
    rounds = [*repeat((Request(), Request()), QUIET), *repeat((Request(), slow), BAD)]
    data = {"app": pages(rounds), "vllm": vllm_pages(len(rounds))}
    folder = tmp_path_factory.mktemp("planted")
    with holding(folder, prometheus_programs, **data) as ask:
        yield request.param, ask


def shown(ask, title):
    """Seconds by phase on the panel of that title."""
    (query,) = (q for q in QUERIES if q.panel["title"] == title)
    return {labels[PHASE]: value for labels, value in ask(query.expr)}


def fired(ask, alert):
    """The labels of what the alert's expressions find."""
    wanted = (rule["expr"] for rule in rules("alerts.yaml") if rule["alert"] == alert)
    return [labels for expr in wanted for labels, _ in ask(expr)]


@pytest.mark.parametrize(
    "title", ["Mean TTFT by phase", "Mean TTFT by phase, slow requests only", "What changed"]
)
def test_the_phase_that_got_slow_stands_out(planted, title):
    """On each panel that splits the wait, the greatest part is the phase that got slow."""
    phase, ask = planted
    seconds = shown(ask, title)

    assert phase == max(seconds, key=seconds.get)


def test_only_the_phase_that_got_slow_has_changed(planted):
    """The mean grew by half of three seconds, since half of the requests are slow, and only there.

    A wait without a split also takes what other phases had, hence the room of 50 ms.
    """
    phase, ask = planted
    seconds = shown(ask, "What changed")
    grown = seconds.pop(phase)

    assert 1.5 == pytest.approx(grown, abs=0.05)
    assert all(abs(value) < 0.05 for value in seconds.values())


def test_the_burning_budget_blames_the_phase_that_got_slow(planted):
    """Both burn alerts of TTFT find the model and name the phase."""
    phase, ask = planted
    labels = {"gen_ai_request_model": "tiny", PHASE: phase}

    assert [labels, labels] == fired(ask, "LlmTraceTtftBurn")


def test_a_phase_with_an_alert_of_its_own_fires_that_one_alone(planted):
    """Slow retrieval, delivery, a cold start and a silent join fire their own alert, no other."""
    phase, ask = planted

    assert [alert for alert in ALSO.values() if fired(ask, alert)] == [
        alert for slow, alert in ALSO.items() if slow == phase
    ]
