"""The report: whole in one file, readable by everyone, and safe from what a server calls itself."""

import re
from xml.etree import ElementTree as ET

import pytest
from bench_results import cell, results
from hypothesis import given
from hypothesis import strategies as st

from llm_trace.bench.chart import Bar, Point, Series, bars, lines, ticks
from llm_trace.bench.fit import Fit
from llm_trace.bench.gates import Check
from llm_trace.bench.page import render
from llm_trace.bench.results import Phases
from llm_trace.bench.target import Target
from llm_trace.bench.theil import Slope

TARGET = Target(root="http://127.0.0.1:8000", api="chat", model="m")
TTFT = [n / 1000 for n in range(10, 31)]
CELLS = [
    cell(c, n, p, ttft=TTFT, phases=Phases("vllm", {"queue_wait": 0.001, "prefill": 0.02}))
    for c in (1, 8)
    for n in (100, 200)
    for p in ("new", "cached")
]
FIT = Fit(2e-5, 1e-5, 3e-5, 0.01, 42, 100, 200, 0.99, Slope(2e-5, 1e-5, 3e-5, 0.01), 0.01)


@pytest.fixture(scope="module")
def page():
    """The report of a run with everything in it."""
    return render(results(*CELLS, prefill=FIT), TARGET, [Check("failed > 0", True, 0.5)])


def pictures(page):
    """Every plot, read as XML."""
    return [ET.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page)]  # noqa: S314 - ours


def test_it_asks_nothing_of_any_network(page):
    """No script, style, picture or font from elsewhere; only the server's own URL is named."""
    assert "<script" not in page
    assert not re.search(r"(src|href)=|@import|url\(", page)
    assert set(re.findall(r"https?://[\w.:]+", page)) == {"http://127.0.0.1:8000"}


def test_every_element_is_closed(page):
    """The page is as strict as XML, so that no browser has to guess."""
    main = re.search(r"<main>.*</main>", page, re.DOTALL)[0]

    assert ET.fromstring(main).tag == "main"  # noqa: S314 - ours


def test_every_plot_can_be_heard(page):
    """A title, a description with the numbers, and ids that are used once."""
    plots = pictures(page)
    ids = re.findall(r'id="(\w+)"', page)

    assert len(plots) == 2 + 2 + 1  # a concurrency each, throughput of each prefix, phases
    assert len(ids) == len(set(ids)) == 2 * len(plots)
    for plot in plots:
        assert plot.get("role") == "img"
        title, about = plot[0], plot[1]
        assert plot.get("aria-labelledby") == f"{title.get('id')} {about.get('id')}"
        assert len(title.text) > 5
        assert len(about.text) > 20


def test_the_table_repeats_what_the_plots_show(page):
    """A row for each cell, with heads for those who listen."""
    assert page.count('<th scope="row">') == len(CELLS)
    assert "200 cached, 8 at once" in page
    assert "confirmed, 90% cached, by usage" in page


def test_it_follows_into_the_dark(page):
    """Colours are variables, and the dark has its own."""
    light, dark = re.findall(r":root \{(.*?)\}", page, re.DOTALL)

    names = re.findall(r"--\w+", light)
    assert "prefers-color-scheme: dark" in page
    assert names == re.findall(r"--\w+", dark)
    assert set(re.findall(r"var\((--\w+)\)", page)) <= set(names)


def test_what_failed_is_said_first(page):
    """Above every plot."""
    assert page.index("Failed: failed &gt; 0") < page.index("<svg")


def test_a_server_cannot_write_into_the_page():
    """Its model's name is text."""
    hostile = Target(root="http://127.0.0.1", api="chat", model="<script>alert(1)</script>&")
    page = render(results(*CELLS), hostile, [])

    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;" in page


def test_a_run_without_numbers_is_a_page():
    """Nothing answered, nothing known."""
    page = render(results(cell(1, 100, "new", failed=3), stopped="it was late"), TARGET, [])

    assert "Not complete: it was late." in page
    assert "nan" not in page.lower()


@given(st.floats(1e-9, 1e12))
def test_marks_are_few_round_and_reach_the_top(most):
    """From 0, in steps of 1, 2 or 5."""
    marks = ticks(most)

    assert marks[0] == 0
    assert 2 <= len(marks) <= 8
    assert marks[-1] >= most * (1 - 1e-6)


@given(st.lists(st.floats(0, 1e9), max_size=6), st.text(max_size=20))
def test_any_values_make_a_picture(values, name):
    """It is XML, and no place on it is NaN."""
    name = "".join(letter for letter in name if letter.isprintable())
    points = [Point(value, value, 0.0, value * 2) for value in values]
    for svg in (
        lines("t", name, ("x", "y"), [Series(name, points)]),
        bars("t", name, "ms", [name], [Bar(name, values)]),
    ):
        assert len(pictures(svg)) == 1
        assert "nan" not in svg.replace(name, "").lower()
