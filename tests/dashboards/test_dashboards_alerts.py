"""Every alert fires when it should and is quiet when it should not, by promtool's own judgement."""

from __future__ import annotations

import json
import subprocess

import app_cases
import burn_cases
import engine_cases
import gpu_cases
import pytest
from board_files import GENERATED, rules

pytestmark = pytest.mark.services

CASES = (*burn_cases.CASES, *engine_cases.CASES, *gpu_cases.CASES, *app_cases.CASES)
FILES = [str(GENERATED / name) for name in ("rules.yaml", "alerts.yaml")]


def promtool(programs, *command):
    """Run promtool; its exit status and what it said."""
    whole = [programs / "promtool", *command]
    done = subprocess.run(whole, check=False, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_promtool_takes_the_rules(prometheus_programs):
    """The rule files are valid."""
    status, said = promtool(prometheus_programs, "check", "rules", *FILES)

    assert 0 == status, said


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.alert}: {case.says}")
def test_an_alert_fires_or_is_quiet(prometheus_programs, tmp_path, case):
    """What fires has exactly the labels and annotations that the case expects."""
    when = {"eval_time": f"{case.minutes}m", "alertname": case.alert}
    test = {
        "name": case.says,
        "interval": "1m",
        "input_series": list(case.series),
        "alert_rule_test": [{**when, "exp_alerts": list(case.fires)}],
    }
    file = tmp_path / "case.yaml"
    content = {"rule_files": FILES, "evaluation_interval": "5m", "tests": [test]}
    file.write_text(json.dumps(content))

    status, said = promtool(prometheus_programs, "test", "rules", file)

    assert 0 == status, said


def test_every_alert_of_each_severity_has_a_firing_case():
    """No alert is shipped that was never seen to fire."""
    fired = {(c.alert, f["exp_labels"]["severity"]) for c in CASES for f in c.fires}

    assert {(rule["alert"], rule["labels"]["severity"]) for rule in rules("alerts.yaml")} == fired


def test_every_alert_has_a_quiet_case():
    """No alert is shipped that was never seen to stay quiet."""
    quiet = {case.alert for case in CASES if not case.fires}

    assert {rule["alert"] for rule in rules("alerts.yaml")} == quiet
