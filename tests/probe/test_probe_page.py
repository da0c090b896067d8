"""What the screen says of a stream, and that it has the width of a terminal."""

import pytest

from llm_trace.console import Style
from llm_trace.probe.pace import Pace
from llm_trace.probe.page import document, render, stream_of
from llm_trace.probe.reading import Reading

MS = 1_000_000
PLAIN = Style()


def reading(stream="streamed", ttft=400, failure=None, first=None, status=200):
    """Build an answer of 60 tokens, of which the first came after so many ms."""
    return Reading(
        trace_id="7" * 32,
        connect=1 * MS,
        tls=None,
        status=status,
        failure=failure,
        head=ttft * MS,
        ttft=ttft * MS,
        total=900_000 * MS,
        pace=Pace(60, 3, 880 * MS, stream),
        first=first or {},
    )


@pytest.mark.parametrize(
    ("stream", "says"),
    [
        ("streamed", "arrives as it is sent: 60 tokens in 3 arrivals"),
        ("lumped", "LUMPED together on its way: 60 tokens in 3 arrivals"),
        ("suspect", "within 880.0 ms, after a wait of 400.0 ms"),
        ("unknown", "cannot be told: 60 tokens"),
    ],
)
def test_each_kind_of_stream_has_its_words(stream, says):
    """One line says what was seen; every line fits."""
    lines = render("http://a:8000/" + "x" * 200, [reading(stream)] * 2, PLAIN)

    assert any(says in line for line in lines)
    assert max(map(len, lines)) <= 80


def test_the_worst_answer_decides():
    """One lumped stream among good ones is a proxy that lumps; failures do not count."""
    good, bad = reading(), reading("lumped")

    assert "lumped" == stream_of([good, bad, good])
    assert "streamed" == stream_of([good, reading("lumped", failure="broken off: timeout")])
    assert "unknown" == stream_of([])


def test_the_servers_phases_are_those_of_the_answer_in_the_middle():
    """Three answers: the one whose server took neither the least nor the most."""
    told = [reading(first={"prefill": ns * MS}) for ns in (300, 100, 200)]

    lines = render("http://a", told, PLAIN)

    assert ["       prefill     200.0 ms"] == [line for line in lines if "prefill" in line]


def test_long_times_are_shown_in_seconds():
    """Columns keep their width."""
    lines = render("http://a", [reading(ttft=12_345)], PLAIN)

    assert any("12.3 s" in line and "900.0 s" in line for line in lines)


def test_when_nobody_answered_the_screen_says_so():
    """Beside each trace stands why."""
    lines = render("http://a", [reading(failure="status 503: busy")], PLAIN)

    assert "No request was answered." in lines
    assert not any("does not tell its own time" in line for line in lines)  # who knows
    assert f"trace {'7' * 32}  status 503: busy" == lines[-1]


@pytest.mark.parametrize(
    ("status", "advice"), [(401, "--api-key-env"), (404, "--model"), (405, "the route")]
)
def test_what_a_refusal_usually_means_is_said(status, advice):
    """The key, the route or the model."""
    lines = render("http://a", [reading(failure=f"status {status}", status=status)], PLAIN)

    after = lines.index("No request was answered.") + 1
    assert advice in lines[after]
    assert len(lines[after]) <= 80


def test_the_document_has_null_for_what_is_not_known():
    """Machines tell unknown from zero."""
    one = document("http://a", [reading()])["requests"][0]

    assert {"ttft_seconds": None, "total_seconds": None} == one["network"]
    assert 0.4 == one["client"]["ttft_seconds"]
