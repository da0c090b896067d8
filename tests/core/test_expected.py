"""What a benchmark lets us expect of a request, and which files are none."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_trace.core.expected import SCHEMA, Curve, Expected, expect, read
from llm_trace.core.usage import Usage


def cell(length, prefix, median, share=None, verdict="confirmed", **more):
    """A cell as the benchmark writes it."""
    return {
        "concurrency": 1,
        "prompt_tokens": length,
        "counted_prompt_tokens": length,
        "prefix": prefix,
        "ttft": {"median": median},
        "reuse": {"verdict": verdict, "share": share},
        **more,
    }


def document(*cells, **more):
    """A benchmark's document with these cells."""
    return {"schema": SCHEMA, "target": {"model": "m"}, "cells": list(cells), **more}


CELLS = (
    cell(100, "new", 0.1, 0.0),
    cell(100, "cached", 0.02, 0.8),
    cell(300, "new", 0.3, 0.0),
    cell(300, "cached", 0.04, 0.9),
)


class Told:
    """As much of a request's record as an expectation is made of."""

    visible = None

    def __init__(self, tokens, cached, *, model="m", start_state="warm"):
        self.usage = Usage(input_tokens=tokens, cached_tokens=cached)
        self.model = model
        self.start_state = start_state


@pytest.mark.parametrize(
    ("tokens", "cached", "seconds"),
    [
        (100, 0, 0.1),
        (200, 0, 0.2),
        (300, 0, 0.3),
        (100, 80, 0.02),
        (100, 100, 0.02),
        (100, 40, 0.06),
        (300, 270, 0.04),
        (99, 0, None),
        (301, 0, None),
        (None, 0, None),
        (100, None, None),
    ],
)
def test_a_request_lies_between_what_was_measured(tokens, cached, seconds):
    """By its length, and by the share of its prompt that was cached; nothing beyond the points."""
    expected = expect(document(*CELLS))

    assert expected.of(Told(tokens, cached)) == (seconds and pytest.approx(seconds))


@pytest.mark.parametrize("told", [{"model": "other"}, {"start_state": "cold"}])
def test_another_model_and_a_cold_start_are_not_expected(told):
    """The benchmark was of one model, and of a loaded one."""
    assert expect(document(*CELLS)).of(Told(100, 0, **told)) is None


def test_a_cell_that_measured_something_else_is_left_out():
    """A new prefix that was cached, a cached one that was not: neither is what it says."""
    wrong = [cell(500, "new", 9, verdict="refuted"), cell(500, "cached", 9, verdict="unconfirmed")]
    expected = expect(document(*CELLS, *wrong))

    assert expected.new.tokens == expected.cached.tokens == (100, 300)


def test_only_the_fewest_requests_at_once_count():
    """An expectation is of an engine that is not busy with others."""
    busy = {**cell(100, "new", 5.0, 0.0), "concurrency": 8}

    assert expect(document(*CELLS, busy)) == expect(document(busy, *CELLS))
    assert expect(document(*CELLS, busy)).new.values == (0.1, 0.3)


def test_the_servers_own_clock_is_preferred_where_every_cell_has_it():
    """Requests are measured by it, too: without the way there and back."""
    both = [cell(n, "new", 0.5, server_ttft={"median": 0.4}) for n in (100, 300)]

    assert expect(document(*both)).new.values == (0.4, 0.4)
    assert expect(document(*both, cell(200, "new", 0.5))).new.values == (0.5, 0.5, 0.5)


def test_without_cached_cells_only_new_prefixes_are_expected():
    """What was not measured is absent."""
    expected = expect(document(CELLS[0], CELLS[2]))

    assert expected.at(200, 0) == pytest.approx(0.2)
    assert expected.at(200, 0.5) is None


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (None, "cannot be read"),
        ("", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[]", "has not the schema"),
        ('{"schema": "llm-trace.bench/2"}', "has not the schema"),
        (json.dumps(document()), "measured no prompt"),
        (json.dumps(document(CELLS[1])), "measured no prompt"),
        (json.dumps({**document(*CELLS), "target": None}), "measured no prompt"),
        (json.dumps(document(cell(100, "new", float("nan")))), "measured no prompt"),
    ],
)
def test_a_file_that_is_no_benchmark_is_refused(tmp_path, text, fault):
    """With a reason, at start."""
    path = tmp_path / "bench.json"
    if text is not None:
        path.write_text(text)

    with pytest.raises(ValueError, match=fault):
        read(str(path))


def test_a_benchmark_is_read(tmp_path):
    """From the file that the command writes."""
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(document(*CELLS)))

    assert read(str(path)) == expect(document(*CELLS))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["concurrency", "prompt_tokens", "prefix", "ttft", "reuse", "median"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["cells", "target", "model"]), JSON))
def test_any_document_is_an_expectation_or_a_reason(broken):
    """Whatever stands where, it is a ValueError at start and never anything else."""
    try:
        made = expect(broken)
    except ValueError:
        return
    assert isinstance(made, Expected)


@given(st.lists(st.tuples(st.floats(1, 1e5), st.floats(0.001, 10)), min_size=1), st.floats(0, 2e5))
def test_a_curve_stays_between_its_points(points, at):
    """Never above the highest, never below the lowest, and nothing outside."""
    known = dict(points)
    curve = Curve(tuple(sorted(known)), tuple(known[x] for x in sorted(known)))
    value = curve.at(at)

    inside = curve.tokens[0] <= at <= curve.tokens[-1]
    assert (value is not None) == inside
    if value is not None:
        assert min(curve.values) * (1 - 1e-9) <= value <= max(curve.values) * (1 + 1e-9)
