"""The comparison on a real Prometheus: a planted change is found, and nothing else."""

import json
from itertools import chain
from statistics import fmean

import pytest
from board_prometheus import START
from board_traffic import Request
from diff_traffic import MINUTES, holding_samples, requests, samples

from llm_trace import cli

pytestmark = pytest.mark.services

HOUR = MINUTES * 60
ROLLED_OUT = START + 2 * HOUR + 600
LOADS = 5.0
"""Seconds that the first request of the new release spends on loading the model."""


@pytest.fixture(scope="module")
def prometheus(prometheus_programs, tmp_path_factory):
    """Three hours of one app, and a release that was rolled out in the third.

    In the second hour the queue is 300 ms longer; the third is as the first.
    """
    hours = chain(requests(1), requests(2, queue=320), requests(3))
    rolled_out = [[Request(load=round(LOADS * 1000))], *list(requests(4))[1:]]
    with holding_samples(
        tmp_path_factory.mktemp("planted"),
        prometheus_programs,
        samples(hours, START, job="app", instance="a:1", version="1.4"),
        samples(rolled_out, ROLLED_OUT, job="app", instance="b:1", version="1.5"),
    ) as url:
        yield url


def planted():
    """Seconds by which the mean queue of the second hour's requests is longer."""
    means = [
        fmean(one.queue for served in list(rounds)[1:] for one in served)
        for rounds in (requests(1), requests(2, queue=320))
    ]
    return (means[1] - means[0]) / 1000


def hour(number):
    """The window of one of the three hours; a scrape falls on each end."""
    return f"{START + number * HOUR}..{START + (number + 1) * HOUR - 30}"


def diff(prometheus, capsys, *words):
    """Run the command: its status and what it printed."""
    status = cli.main(["diff", "--prometheus", prometheus, *words])
    return status, capsys.readouterr().out


def document(prometheus, capsys, *words):
    """The JSON document of a comparison."""
    return json.loads(diff(prometheus, capsys, *words, "--json")[1])


def phase(found, name):
    """One phase of a document."""
    return next(one for one in found["phases"] if one["phase"] == name)


def test_the_planted_phase_moved_and_no_other(prometheus, capsys):
    """By about 300 ms, by what the requests say to a hundredth; it is what TTFT grew by."""
    found = document(prometheus, capsys, hour(0), hour(1))
    queue = phase(found, "queue_wait")

    assert {one["phase"]: one["word"] for one in found["phases"]} == {
        **dict.fromkeys(("admission", "retrieval", "prepare", "prefill", "first_token"), "noise"),
        "queue_wait": "moved",
    }
    assert queue["change"]["value"] == pytest.approx(planted(), rel=0.01)
    assert queue["change"]["low"] < planted() < queue["change"]["high"]
    assert queue["p"] < 0.001
    assert queue["shape_p"] < 0.05
    assert found["slower"]
    assert found["ttft"]["change"]["value"] == pytest.approx(0.3, abs=0.04)
    assert found["verdict"].startswith("Mean TTFT grew by")
    assert "Moved: queue_wait +" in found["verdict"]


def test_the_means_of_the_phases_add_up(prometheus, capsys):
    """On both sides, to the mean TTFT."""
    found = document(prometheus, capsys, hour(0), hour(1))

    for side in ("a", "b"):
        whole = sum(one[side] for one in found["phases"])
        assert whole == pytest.approx(found["ttft"][side], rel=1e-9)


def test_the_counts_are_those_of_the_traffic(prometheus, capsys):
    """Five requests a page; Prometheus extrapolates to the ends of each block."""
    found = document(prometheus, capsys, hour(0), hour(1))

    assert found["a"]["first_tokens"] == pytest.approx(5 * 119, rel=0.02)
    assert found["a"]["blocks_with_requests"] == 12
    assert found["others"]["requests_per_second"]["b"] == pytest.approx(5 / 30, rel=0.02)
    assert found["others"]["prompt_tokens"]["a"] == pytest.approx(100, rel=0.01)


@pytest.mark.parametrize("blocks", [9, 11, 12])
def test_every_block_of_a_window_is_asked_for(prometheus, capsys, blocks):
    """Also where it is no whole number of milliseconds long."""
    found = document(prometheus, capsys, hour(0), hour(1), "--blocks", str(blocks))

    assert [found[side]["blocks_with_requests"] for side in "ab"] == [blocks, blocks]


def test_without_a_change_nothing_moved(prometheus, capsys):
    """The third hour is as the first."""
    status, out = diff(
        prometheus, capsys, hour(0), hour(2), "--where", "version=1.4", "--fail-if-slower"
    )

    assert status == 0
    assert "No phase moved by more than its noise" in " ".join(out.split())


def test_slower_is_status_1_where_it_was_asked_for(prometheus, capsys):
    """And faster is not."""
    assert diff(prometheus, capsys, hour(0), hour(1), "--fail-if-slower")[0] == 1
    assert diff(prometheus, capsys, hour(0), hour(1))[0] == 0
    assert diff(prometheus, capsys, hour(1), hour(0), "--fail-if-slower")[0] == 0


def test_releases_side_by_side(prometheus, capsys):
    """A counter that was born with the release counts in full: here its one cold start."""
    window = hour(2)
    found = document(prometheus, capsys, f"version=1.4@{window}", f"version=1.5@{window}")
    load = phase(found, "model_load")

    assert load["a"] == 0
    assert load["b"] * found["b"]["first_tokens"] == pytest.approx(LOADS, rel=0.001)
    assert found["others"]["cold_share"]["b"] > 0
    assert phase(found, "queue_wait")["word"] == "noise"


def test_the_screen_keeps_to_eighty_columns(prometheus, capsys):
    """With the phase that moved, its interval, and what else was different."""
    _, out = diff(prometheus, capsys, hour(0), hour(1))
    row = next(line for line in out.splitlines() if line.startswith("queue_wait"))

    assert max(map(len, out.splitlines())) <= 80
    assert row.endswith("<0.001 moved")
    assert "what else was" in out
    assert "first tokens" in out


@pytest.mark.parametrize(
    "sides",
    [("version=9", hour(0)), ("version=1.4@2001-01-01T00:00Z..2001-01-01T01:00Z", hour(0))],
)
def test_a_side_without_data_is_told(prometheus, capsys, sides):
    """With the window and the labels that were asked for."""
    assert cli.main(["diff", "--prometheus", prometheus, *sides]) == 2
    assert "has no first tokens" in capsys.readouterr().err


def test_a_refusal_of_prometheus_is_told(prometheus, capsys):
    """In its own words."""
    assert cli.main(["diff", "--prometheus", f"{prometheus}/elsewhere", hour(0), hour(1)]) == 2
    assert "answers 404" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("served", "first_tokens"),
    [
        (lambda: [samples(chain(requests(1), requests(3)), START, job="app")], 5 * 104),
        (
            lambda: [
                samples(requests(1), START, job="app"),
                samples([*requests(3)][:40], START + HOUR + 2400, job="app"),
            ],
            5 * 40,
        ),
    ],
    ids=["found again", "begun anew"],
)
def test_an_outage_of_the_scrapes_is_no_birth(
    prometheus_programs, tmp_path, capsys, served, first_tokens
):
    """A counter that is found again was not born then; one that begins anew below it was."""
    down = range(START + HOUR + 24 * 60, START + HOUR + 32 * 60)
    up = (x for part in served() for x in part if float(x.split()[-1]) not in down)
    with holding_samples(tmp_path, prometheus_programs, up) as url:
        found = document(url, capsys, hour(0), hour(1))

    assert found["b"]["first_tokens"] == pytest.approx(first_tokens, rel=0.02)
