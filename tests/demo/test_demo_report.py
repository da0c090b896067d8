"""From ledgers to the report: the sums, the statistics, the drawing and the advice."""

import json

import pytest
from demo_builders import answer, joined, root, span

from llm_trace import semconv as s
from llm_trace.console import Style
from llm_trace.demo import screen, table, waterfall
from llm_trace.demo.advice import HINTS, advise
from llm_trace.demo.engine import APP_SERVICE, VLLM_SERVICE, Engine
from llm_trace.demo.joined import APP, BETWEEN, ENGINE, LINES, NETWORK, Line, join
from llm_trace.demo.load import KINDS, Plan
from llm_trace.demo.metrics import fit, highlights
from llm_trace.demo.results import Results, document
from llm_trace.demo.summary import quantile, summarise
from llm_trace.demo.width import WIDTH

VLLM = Engine("python", "0.32.0", "")
SIMULATED = Engine(None, "", "no vLLM.")
QUEUED = {"admission": 0.01, "queue_wait": 0.05, "prefill": 0.02}


def results(made, engine=VLLM, answers=None):
    """Wrap joined requests as the outcome of a run."""
    every = answers or [one.answer for one in made]
    return Results(engine, Plan(), every, made, {"http://x/metrics": ["llm_trace_x 1"]}, 0)


def test_the_engines_ledger_takes_the_place_of_the_engine_phase():
    """What the app calls engine is split by the engine; what is left over is the way there."""
    one = joined(ttft=0.2, app={"admission": 0.01, "engine": 0.18}, engine=QUEUED)

    assert one.parts == pytest.approx(
        {
            Line(BETWEEN, NETWORK): 0.1,
            Line(ENGINE, "admission"): 0.01,
            Line(ENGINE, "queue_wait"): 0.05,
            Line(ENGINE, "prefill"): 0.02,
            Line(APP, "admission"): 0.01,
        }
    )
    assert one.total == pytest.approx(0.19)
    assert one.difference == pytest.approx(0.01)


def test_a_ledger_that_came_in_band_is_counted_once():
    """The app's ledger is split already; the engine's own spans take that stretch all the same."""
    told = {"engine": 0.02, "network": 0.03, "queue_wait": 0.05, "prefill": 0.02}
    app = {"admission": 0.01, **told, "first_token": 0.015}
    one = joined(ttft=0.145, app=app, engine={**QUEUED, "first_token": 0.01})

    assert one.parts == pytest.approx(
        {
            Line(BETWEEN, NETWORK): 0.04,
            Line(ENGINE, "admission"): 0.01,
            Line(ENGINE, "queue_wait"): 0.05,
            Line(ENGINE, "prefill"): 0.02,
            Line(ENGINE, "first_token"): 0.01,
            Line(APP, "admission"): 0.01,
            Line(APP, "first_token"): 0.005,
        }
    )
    assert one.total == pytest.approx(0.145)


def test_without_the_engines_ledger_the_engine_stays_whole():
    """Nothing is invented when the engine is not traced."""
    assert Line(APP, "engine") in joined().parts


@pytest.mark.parametrize(
    ("reply", "spans"),
    [
        (answer(), []),
        (answer(), [span("admission")]),
        (answer(), [root(VLLM_SERVICE, QUEUED)]),
        (answer(error="cut"), [root(APP_SERVICE, QUEUED)]),
    ],
)
def test_a_request_without_answer_or_ledger_is_not_joined(reply, spans):
    """What cannot be added up is left out and counted elsewhere."""
    assert join(reply, spans) is None


def test_every_phase_of_the_vocabulary_has_a_line_and_a_hint():
    """A phase added to the ledger cannot be forgotten here."""
    in_ttft = set(s.PHASES) - {s.DECODE, s.FINISH}

    assert {line.phase for line in LINES} == in_ttft | {NETWORK}
    assert set(HINTS) == in_ttft | {NETWORK}


def test_quantiles_are_measured_values():
    """The nearest rank is one of the values."""
    assert [quantile([3, 1, 2], share) for share in (0.0, 0.5, 0.95)] == [1, 2, 3]
    assert quantile(list(range(1, 101)), 0.95) == 95


def test_a_class_is_summarised_by_medians_and_by_means_that_add_up():
    """Means of the parts add up to the mean of the sums; a missing part counts as zero."""
    made = [joined(ttft=0.2, app=QUEUED), joined(ttft=0.4, app={"admission": 0.3})]
    (summary,) = summarise(made)

    assert summary.count == 2
    assert summary.ttft_median == pytest.approx(0.3)
    assert summary.ttft_p95 == 0.4
    assert sum(summary.part_means.values()) == pytest.approx((0.08 + 0.3) / 2)
    assert summary.part_medians[Line(APP, "queue_wait")] == pytest.approx(0.025)
    assert summary.difference_largest == pytest.approx(0.12)
    assert summary.dominant == Line(APP, "admission")


def test_classes_come_in_the_order_of_the_demo():
    """Columns stand in the order in which the load is explained."""
    made = [joined(kind) for kind in reversed(KINDS)]

    assert [one.kind for one in summarise(made)] == list(KINDS)


def test_the_table_names_who_measured_each_part():
    """Each row of the split says app, engine or the way between."""
    summaries = summarise([joined(ttft=0.2, engine=QUEUED)])
    rows = list(table.render(summaries, VLLM_SERVICE, Style()))
    split = rows[rows.index("where it went, medians, and which process measured it:") + 1 :]

    assert [row.split() for row in split[:4]] == [
        ["rag-app", "admission", "10.0"],
        ["between", "the", "two", "network", "100.0"],
        ["vllm", "admission", "10.0"],
        ["vllm", "queue_wait", "50.0"],
    ]


def test_the_waterfall_draws_children_under_their_parents():
    """Depth is parentage, the bar is time, and the client's row holds them all."""
    spans = [
        span("chat", 0.0, 0.2, span_id="r", **{s.OUTCOME: "ok", s.TTFT: 0.1}),
        span("llm_request", 0.05, 0.2, span_id="c", parent="r", service=VLLM_SERVICE),
        span("retrieval", 0.01, 0.03, span_id="b", parent="r"),
    ]
    drawn = list(waterfall.render(join(answer(ttft=0.1), spans), Style()))

    assert [row.split()[:4] for row in drawn[1:5]] == [
        ["request", "client", "0.0", "200.0"],
        ["chat", "rag-app", "0.0", "200.0"],
        ["retrieval", "rag-app", "10.0", "20.0"],
        ["llm_request", "vllm", "50.0", "150.0"],
    ]
    assert "first token" in drawn[5]
    assert all(len(row) <= WIDTH for row in drawn)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99, 1.0])
def test_the_first_token_is_marked_within_the_width(share):
    """Early or late, the mark stands under its moment and no word is cut."""
    spans = [root("engine-SIMULATED", QUEUED), root(APP_SERVICE, QUEUED)]
    *_, mark = waterfall.render(join(answer(ttft=share, last=1.0), spans), Style())

    assert "first token" in mark
    assert len(mark) <= WIDTH


def test_advice_follows_the_numbers():
    """Another dominant phase makes another sentence, with its own share."""
    queue = advise(summarise([joined(ttft=0.1, engine=QUEUED)]))
    prefill = advise(summarise([joined(ttft=0.1, engine={"queue_wait": 0.01, "prefill": 0.06})]))

    assert queue[0] == "unique: queue_wait dominates with 50% (50 of 100 ms, means)."
    assert queue[1].startswith("queue_wait: ")
    assert any("prefill twice as fast takes 10 ms (10%)" in line for line in queue)
    assert prefill[0] == "unique: prefill dominates with 60% (60 of 100 ms, means)."
    assert any("No queue at all would save unique 10 ms (10%)" in line for line in prefill)


def test_advice_compares_alone_with_crowd_and_new_with_cached():
    """Both comparisons are made from the run's own numbers."""
    tokens = {s.USAGE_INPUT_TOKENS: 100, s.USAGE_CACHED_TOKENS: 75}
    made = [
        joined("alone", 0.1, engine={"prefill": 0.05}),
        joined("unique", 0.3, engine={"prefill": 0.05, "queue_wait": 0.15}),
        joined("shared", 0.1, engine={"prefill": 0.01, "queue_wait": 0.02}, **tokens),
    ]
    text = "\n".join(advise(summarise(made)))

    assert "100 ms alone and 300 ms in the crowd (means); of the +200 ms, +150 ms are" in text
    assert "50 ms for new prompts and 10 ms with 75% of the prompt cached" in text


def test_a_phase_that_the_app_named_is_shown_and_explained():
    """User-named phases have a row of their own."""
    made = [joined(ttft=0.2, app={"rerank": 0.15, "engine": 0.02})]

    assert "rerank" in "\n".join(table.render(summarise(made), VLLM_SERVICE, Style()))
    assert "named itself" in "\n".join(advise(summarise(made)))


@pytest.mark.parametrize("engine", [VLLM, SIMULATED])
def test_the_screen_fits_a_hundred_columns(engine):
    """No line is wider, whatever it shows; SIMULATED is on every block of a simulated run."""
    made = [joined(kind, 123.4, engine=QUEUED) for kind in KINDS]
    lines = list(screen.render(results(made, engine), Style()))

    assert max(map(len, lines)) <= WIDTH
    assert ("SIMULATED" in "\n".join(lines)) is engine.simulated


def test_failures_are_counted_and_shown():
    """A run with failures says so first, and is not good."""
    failed = [answer(error="status 502", ttft=None, last=0.1)] * 5
    one = joined()
    run = results([one], answers=[one.answer, answer(), *failed])
    text = "\n".join(screen.render(run, Style()))

    assert not run.good
    assert "5 requests FAILED" in text
    assert "1 good requests have no ledger from the app" in text
    assert "1 requests have no ledger from the engine" in text


def test_a_run_where_all_failed_has_no_table():
    """Nothing is divided by nothing."""
    text = "\n".join(screen.render(results([], answers=[answer(error="gone")]), Style()))

    assert "1 requests FAILED" in text
    assert "where it went" not in text


def test_the_document_is_json_and_adds_up():
    """The machine-readable form holds the same sums."""
    made = [joined(ttft=0.2, engine=QUEUED)]
    data = json.loads(json.dumps(document(results(made))))
    (request,) = data["requests"]

    assert data["engine"]["simulated"] is False
    assert request["sum"] == pytest.approx(sum(request["parts"].values()))
    assert request["parts"]["engine.queue_wait"] == 0.05
    assert data["classes"][0]["dominant"] == "between.network"
    assert data["slowest"][0]["name"] == "request"


def test_proof_lines_are_the_largest_samples():
    """Of each metric the most telling sample is picked; a page without them gives none."""
    name = s.REQUESTS.prometheus
    page = f'# HELP {name} x\n{name}{{a="1"}} 2.0\n{name}{{a="2"}} 7.0\n{name}_created 1e9\n'

    assert highlights(page) == [f'{name}{{a="2"}} 7.0']
    assert highlights("") == []


def test_wide_samples_are_broken_at_labels():
    """A sample that does not fit goes on in the next line."""
    sample = 'metric{one="aaaaaaaa",two="bbbbbbbb",three="c"} 1.0'

    assert list(fit(sample, 36)) == [
        'metric{one="aaaaaaaa",',
        '    two="bbbbbbbb",three="c"} 1.0',
    ]
