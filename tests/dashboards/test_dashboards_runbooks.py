"""Every alert has a runbook that a tired reader can follow to panels and metrics that exist."""

from __future__ import annotations

import re

import pytest
from board_files import BOARDS, PANELS, RUNBOOKS, rules
from known_series import KNOWN

from llm_trace import semconv as s

HEADINGS = ["## Meaning", "## Impact", "## Diagnosis", "## Mitigation"]
TITLES = {board["uid"]: board["title"] for board in BOARDS}
RUNBOOK_FILES = sorted(RUNBOOKS.glob("*.md"))


def test_every_alert_has_a_runbook_and_every_runbook_an_alert():
    """Runbooks and alerts have the same names."""
    assert {rule["alert"] for rule in rules("alerts.yaml")} == {path.stem for path in RUNBOOK_FILES}


@pytest.mark.parametrize("path", RUNBOOK_FILES, ids=lambda path: path.stem)
def test_a_runbook_has_the_four_headings_with_something_under_each(path):
    """A runbook is titled with its alert and says meaning, impact, diagnosis and mitigation."""
    text = path.read_text()
    title, *parts = re.split(r"^(?=#)", text, flags=re.MULTILINE)[1:]

    assert f"# {path.stem}" == title.splitlines()[0]
    assert HEADINGS == [part.splitlines()[0] for part in parts]
    assert all(len(part.split()) > 8 for part in parts)


@pytest.mark.parametrize("path", RUNBOOK_FILES, ids=lambda path: path.stem)
def test_a_runbook_names_panels_and_metrics_that_exist(path):
    """Panels in bold and metrics in code are real ones."""
    text = path.read_text()
    titles = {panel["title"] for _, panel in PANELS}
    named = set(re.findall(r"\*\*([^*]+)\*\*", text))
    code = set(re.findall(r"`((?:vllm:|llm_trace_|gen_ai_server_)\w+)`", text))
    labels = {name.replace(".", "_") for metric in s.METRICS for name in metric.labels}

    assert named <= titles
    assert code <= KNOWN | {m.prometheus for m in s.METRICS} | labels


@pytest.mark.parametrize("path", RUNBOOK_FILES, ids=lambda path: path.stem)
def test_a_runbook_names_boards_and_runbooks_that_exist(path):
    """Boards in italics and alerts by name can be opened."""
    text = path.read_text()
    boards = set(re.findall(r"(?<!\*)\*(LLM: [^*]+)\*(?!\*)", text))
    alerts = set(re.findall(r"LlmTrace[A-Z]\w+", text))

    assert boards <= {board["title"] for board in BOARDS}
    assert alerts <= {each.stem for each in RUNBOOK_FILES}


@pytest.mark.parametrize("path", RUNBOOK_FILES, ids=lambda path: path.stem)
def test_a_panel_is_on_a_board_that_the_step_names_or_the_one_named_last(path):
    """Nobody has to look for it; a page that names no board means the first, TTFT decomposition."""
    where = {}
    for uid, panel in PANELS:
        where.setdefault(panel["title"], set()).add(TITLES[uid])
    last = "LLM: TTFT decomposition"

    for line in path.read_text().splitlines():
        named = re.findall(r"(?<!\*)\*(LLM: [^*]+)\*(?!\*)", line)
        for title in re.findall(r"\*\*([^*]+)\*\*", line):
            assert where[title] & {last, *named}, line
        last = named[-1] if named else last


def test_the_runbook_of_a_slow_first_token_goes_on_from_every_phase_before_it():
    """Whatever the alert blames has a row."""
    text = (RUNBOOKS / "LlmTraceTtftBurn.md").read_text()
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]

    named = {phase for row in rows for phase in re.findall("`([^`]+)`", row)}
    assert named == {*s.PHASES, s.OTHER} - {s.DECODE, s.FINISH}
