"""The board about GPUs: several of them, values that are none, and no exporter at all."""

from __future__ import annotations

import math
import re

import pytest
from board_files import BOARDS, DCGM_SAMPLE, QUERIES, ROOT, metrics

from dashboards import dcgm

QUERIES_OF_GPUS = [q for q in QUERIES if any(m.startswith("DCGM_") for m in metrics(q.expr))]
COUNTERS = ROOT.parent / "deploy" / "dcgm" / "counters.csv"
SEEN = "GPUs seen"
WITHOUT_VALUE = ("Power", "Throttled", "NVLink", "PCIe, to the GPU", "Engine active")
"""Panels of which the sample's last GPU has no value."""


def of_the_board(title):
    """The queries of the panel of that title."""
    return [q for q in QUERIES_OF_GPUS if q.panel["title"] == title]


@pytest.mark.services
@pytest.mark.parametrize("query", QUERIES_OF_GPUS, ids=str)
def test_no_value_is_shown_as_none(busy, query):
    """No GPU shows one of the numbers by which DCGM says that it has none."""
    assert all(math.isfinite(value) and value < dcgm.NO_GAUGE for _, value in busy(query.expr))


@pytest.mark.services
@pytest.mark.parametrize("title", WITHOUT_VALUE)
def test_a_gpu_without_a_value_is_left_out(busy, title):
    """Three of the four GPUs have the field and are shown, each once, the fourth is not."""
    for query in of_the_board(title):
        shown = [(labels["Hostname"], labels["gpu"]) for labels, _ in busy(query.expr)]

        assert [("gpu-node-1", "0"), ("gpu-node-1", "1"), ("gpu-node-2", "0")] == sorted(shown)


@pytest.mark.services
def test_a_hot_gpu_is_held_back_for_three_fifths_of_the_time(busy):
    """Twelve minutes of twenty, as the sample has them, are three fifths; the units are right."""
    heat, _ = of_the_board("Throttled")
    shares = {(each["Hostname"], each["gpu"]): value for each, value in busy(heat.expr)}

    assert 0.6 == pytest.approx(shares["gpu-node-2", "0"], rel=0.05)
    assert 0 == shares["gpu-node-1", "0"]


@pytest.mark.services
def test_clocks_and_bytes_are_in_base_units(busy):
    """1980 MHz are 1.98 GHz, MiB are bytes, KB and MB a second are bytes a second."""
    first = {
        title: {(at["Hostname"], at["gpu"]): value for at, value in busy(query.expr)}[
            "gpu-node-1", "0"
        ]
        for title in ("SM clock", "Memory used", "PCIe, to the GPU", "NVLink")
        for query in of_the_board(title)
    }

    assert {
        "SM clock": 1.98e9,
        "Memory used": 135_660 * 2**20,
        "PCIe, to the GPU": 210_455e3,
        "NVLink": 48_211e6,
    } == first


@pytest.mark.services
def test_a_gpu_is_told_by_the_pod_that_has_it_not_by_the_exporters(busy):
    """The pod is the renamed one where there is one, the plain one elsewhere, or none."""
    (query,) = of_the_board("Memory used, by pod")
    pods = {(at["Hostname"], at["gpu"]): at["pod"] for at, _ in busy(query.expr)}

    assert {
        ("gpu-node-1", "0"): "vllm-0",
        ("gpu-node-1", "1"): "vllm-1",
        ("gpu-node-2", "0"): "vllm-2",
        ("gpu-node-2", "1"): "no pod",
    } == pods


@pytest.mark.services
def test_all_gpus_are_counted_once(busy):
    """There are four."""
    (query,) = of_the_board(SEEN)

    assert [4] == [value for _, value in busy(query.expr)]


@pytest.mark.services
@pytest.mark.parametrize("query", QUERIES_OF_GPUS, ids=str)
def test_without_the_exporter_none_is_counted_and_nothing_else_is_shown(idle, query):
    """The count is zero, which the words beside it explain; all other panels say "no data"."""
    expected = [0] if query.panel["title"] == SEEN else []

    assert expected == [value for _, value in idle(query.expr)]


def test_the_board_says_what_it_needs():
    """The first panel is words: the exporter's name, and the file for what is off by default."""
    (board,) = (each for each in BOARDS if each["uid"] == "llm-trace-gpu")
    words = next(panel for panel in board["panels"] if panel["type"] == "text")

    assert "DCGM exporter" in words["options"]["content"]
    assert "counters.csv" in words["options"]["content"]
    assert "text" == board["panels"][1]["type"]


def test_the_counters_file_of_the_stack_asks_for_all_that_is_read():
    """Each series that a board or alert may read is a line of the file."""
    lines = COUNTERS.read_text().splitlines()
    asked = {line.partition(",")[0].strip() for line in lines if not line.startswith("#")}
    read = {m for query in QUERIES_OF_GPUS for m in metrics(query.expr) if m.startswith("DCGM_")}

    assert read <= {series.name for series in dcgm.READ} <= asked


def test_the_sample_has_each_type_as_the_exporter_prints_it():
    """The kinds in the table are those of the documentation, which the sample follows."""
    printed = dict(re.findall(r"# TYPE (\S+) (\w+)", DCGM_SAMPLE.read_text()))

    assert {s.name: s.kind for s in dcgm.READ} == {s.name: printed[s.name] for s in dcgm.READ}
