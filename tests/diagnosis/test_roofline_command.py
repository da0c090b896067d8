"""`llm-trace roofline` as a user meets it."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from llm_trace.cli import main

ARGS = ("roofline", "Llama-3.1-8B", "--device", "A100 SXM 80GB")


def run(capsys, *args):
    """Status and what was printed."""
    status = main(args)
    return status, *capsys.readouterr()


def test_the_report_is_readable_in_80_columns(capsys):
    """Tables, a plot, and that it is an estimate."""
    status, out, _ = run(capsys, *ARGS)

    lines = out.splitlines()
    assert status == 0
    assert max(map(len, lines)) <= 80
    assert "ridge 153 op/byte" in out
    assert "    1024         46.70" in out
    assert "An estimate from below" in out


@pytest.mark.parametrize("model", ["DeepSeek-V3", "gpt-oss-20b", "Llama-3.1-405B"])
@pytest.mark.parametrize("device", ["B200", "RTX 4090", "0.1:0.02"])
def test_any_model_and_device_fit_in_80_columns(capsys, model, device):
    """Large and small ones."""
    _, out, _ = run(capsys, "roofline", model, "--device", device, "--tensor-parallel", "8")

    assert max(map(len, out.splitlines())) <= 80


def test_json_has_a_schema_and_says_estimate(capsys):
    """The same numbers for a program."""
    _, out, _ = run(capsys, *ARGS, "--json", "--prompts", "1000", "--batches", "1,8")

    found = json.loads(out)
    assert found["schema"] == "llm-trace.roofline/1"
    assert "estimate" in found["estimate"]
    assert [row["tokens"] for row in found["prefill"]] == [1000]
    assert [row["batch"] for row in found["decode"]] == [1, 8]


def test_the_plot_is_an_svg_with_a_dot_for_each_pass(capsys, tmp_path):
    """One file that needs nothing else."""
    file = tmp_path / "roof.svg"
    run(capsys, *ARGS, "--svg", str(file), "--prompts", "100,1000", "--batches", "1")

    drawn = ET.fromstring(file.read_text(encoding="utf-8"))  # noqa: S314 - our own file
    assert len(drawn.findall("{*}circle")) == 3


def test_weights_that_do_not_fit_are_said(capsys):
    """A model larger than its devices has floors and never runs."""
    _, out, _ = run(capsys, "roofline", "Llama-3.1-70B", "--device", "L4")

    assert "DO NOT FIT" in out


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("roofline", "nothing", "--device", "L4"), "neither a directory"),
        (("roofline", "Qwen3-8B", "--device", "L40"), "did you mean L40S"),
        (
            ("roofline", "Qwen3-8B", "--device", "h100"),
            "did you mean H100 SXM or H100 PCIe or H100 NVL?",
        ),
        (
            ("roofline", "Qwen3-8B", "--device", "L4", "--weights", "x"),
            "quantisation 'x' is unknown: use one of bfloat16",
        ),
        (("roofline", "Qwen3-8B", "--device", "L4", "--svg", "/nowhere/x"), "cannot be written"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(capsys, args, says):
    """No traceback."""
    status, _, err = run(capsys, *args)

    assert (status, err.count("\n")) == (2, 1)
    assert says in err


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@example(model="/dev", device="L4")
@given(model=st.text(), device=st.text())
def test_no_text_makes_a_traceback(capsys, model, device):
    """Any model and any device are answered or refused."""
    if device.lower() == "cpu":
        return
    try:
        status = main(("roofline", f"./{model}", f"--device={device}"))
    except SystemExit as refused:
        status = refused.code
    capsys.readouterr()

    assert status in {0, 2}
