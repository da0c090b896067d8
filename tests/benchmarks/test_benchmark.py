"""The benchmark measures what it says: contenders do their work, and its arithmetic is right."""

from __future__ import annotations

import asyncio

import pytest
from dirty_equals import IsApprox

from tests.benchmarks import drive, stream
from tests.benchmarks.budgets import BUDGETS, Results, judge
from tests.benchmarks.contenders import CONTENDERS, full, otel, otel_one_span
from tests.benchmarks.line import Line, fit
from tests.benchmarks.report import text
from tests.benchmarks.steps import Cost
from tests.benchmarks.steps import measure as measure_steps


def serve(contender, tokens=8):
    """One request of `contender`; the spans that its exporter got."""
    server = drive.Server(stream.chunks(tokens))
    asyncio.run(drive.cpu_ns(contender.app, server, 1, contender.settle))
    contender.close()
    return contender.exporter.spans if contender.exporter else 0


def test_chunks_are_as_long_as_vllms():
    """A token's event has some two hundred bytes and ends with a blank line."""
    chunk = stream.chunks(3)[1]

    assert 180 <= len(chunk) <= 260
    assert chunk.endswith(b"}\n\n")


@pytest.mark.parametrize(
    ("build", "spans"),
    [(full, 10), (otel_one_span, 1), (otel, 16)],
    ids=["full", "one", "all"],
)
def test_contender_makes_its_spans(build, spans):
    """The root, phases (`prepare` around retrieval, twice) and a call; one; one a message more."""
    assert serve(build()) == spans


def test_disabled_app_is_bare():
    """A disabled app has no middleware of ours, built or to be built."""
    app = CONTENDERS["disabled"][1]().app

    assert "build_middleware_stack" not in vars(app)


def test_fit_finds_a_line():
    """Points on a line give that line, however noisy they are said to be."""
    line = fit((2, 66, 258), (14.0, 142.0, 526.0), (1.0, 5.0, 9.0))

    assert line == (IsApprox(10.0), IsApprox(2.0))


def test_fit_trusts_quiet_points():
    """A point said to be a thousand times noisier moves the line by next to nothing."""
    line = fit((0, 1, 2), (0.0, 1.0, 1000.0), (1.0, 1.0, 1000.0))

    assert line == (IsApprox(0.0, delta=0.01), IsApprox(1.0, delta=0.01))


def results(full_us):
    """Measurements that keep every budget, but for those that `full_us` decides."""
    added = dict.fromkeys(CONTENDERS, Line(0.0, 0.0))
    added |= {"otel_one_span": Line(100e3, 500.0), "prometheus": Line(40e3, 100.0)}
    added |= {"full": Line(full_us * 1e3, 300.0), "metrics_only": Line(20e3, 300.0)}
    return Results(added, {"full": 2048.0})


@pytest.mark.parametrize(("full_us", "kept"), [(50.0, True), (101.0, False)])
def test_missed_must_is_said(full_us, kept):
    """A ratio above its must fails that row, and only that row."""
    found = results(full_us)
    verdicts = judge(found)

    assert sum(not verdict.kept for verdict in verdicts) == (not kept)
    assert ("FAIL" in text(found, verdicts, 9)) is not kept
    assert len(verdicts) == len(BUDGETS)


def test_a_step_that_is_too_dear_is_said():
    """Each number of running requests has a budget of its own, for the dearer process."""
    steps = {1: Cost(4.0, 2.0), 32: Cost(8.0, 17.0), 256: Cost(61.0, 2.0)}
    found = results(50.0)._replace(steps=steps)
    verdicts = judge(found)

    assert [verdict.kept for verdict in verdicts[-3:]] == [True, False, True]
    assert [verdict.budget.must for verdict in verdicts[-3:]] == [
        IsApprox(10.2),
        IsApprox(16.4),
        IsApprox(61.2),
    ]
    assert "32 running                                        8.0        17.0" in text(
        found, verdicts, 9
    )


def test_steps_are_measured_beside_the_bare_ones():
    """Few rounds of few steps: every number of running requests has a cost in both processes."""
    found = measure_steps(rounds=3, steps=64)

    assert found.keys() == {1, 32, 256}
    assert all(cost.api > 0 for cost in found.values())
