"""Prometheus and Alertmanager: valid by their own tools, and wired to what runs."""

from __future__ import annotations

import re
import shutil

import pytest
from stack_files import ALERTMANAGER, DEPLOY, GENERATED, PROMETHEUS, ROOT, SERVICES, mounts, read
from stack_tools import run

from llm_trace import semconv as s

INSIDE = "/etc/prometheus/"
CONFIG = DEPLOY / "alertmanager" / "alertmanager.yml"
PHASE = s.PHASE.replace(".", "_")
ALERTS = read(GENERATED / "alerts.yaml")
JOBS = {job["job_name"]: job for job in PROMETHEUS["scrape_configs"]}


@pytest.mark.services
def test_promtool_takes_the_configuration(promtool, tmp_path):
    """Laid out as it is mounted, it is valid, and both rule files are found and valid."""
    for inside, outside in mounts("prometheus").items():
        if inside.startswith(INSIDE):
            target = tmp_path / inside.removeprefix(INSIDE)
            target.parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / outside, target)

    status, said = run(promtool, "check", "config", tmp_path / "prometheus.yml")

    assert 0 == status, said
    assert "2 rule files found" in said


@pytest.mark.services
def test_amtool_takes_the_configuration(amtool):
    """Alertmanager's own check finds nothing wrong."""
    status, said = run(amtool, "check-config", CONFIG)

    assert 0 == status, said


@pytest.mark.services
@pytest.mark.parametrize(
    ("phase", "receiver"),
    [
        *(
            (phase, "engine")
            for phase in ("queue_wait", "prefill", "engine", "model_load", "decode")
        ),
        *(
            (phase, "app")
            for phase in ("admission", "retrieval", "prepare", "network", "first_token", "rerank")
        ),
        *((phase, "rest") for phase in ("unattributed", "")),
    ],
)
def test_an_alert_goes_to_those_whose_phase_is_guilty(amtool, phase, receiver):
    """A full queue and a slow retrieval reach different people."""
    assert_routed(amtool, receiver, "alertname=LlmTraceTtftBurn", f"{PHASE}={phase}")


@pytest.mark.services
@pytest.mark.parametrize(
    ("alert", "receiver"),
    [
        ("LlmTracePreemptionStorm", "engine"),
        ("LlmTraceColdStartWave", "engine"),
        ("LlmTraceEventLoopBlocked", "app"),
        ("LlmTraceEngineJoinSilent", "rest"),
        ("LlmTraceSpansDropped", "rest"),
        ("LlmTraceInternalErrors", "rest"),
    ],
)
def test_an_alert_without_a_phase_goes_to_whoever_can_help(amtool, alert, receiver):
    """By its name."""
    assert_routed(amtool, receiver, f"alertname={alert}")


def assert_routed(amtool, receiver, *labels):
    """An alert with these labels goes to this receiver."""
    command = ("config", "routes", "test", f"--config.file={CONFIG}")
    status, said = run(amtool, *command, f"--verify.receivers={receiver}", *labels)

    assert 0 == status, said


def test_every_phase_but_the_unexplained_has_a_route():
    """No phase of the ledger is forgotten, and none is made up."""
    assert sorted(set(s.PHASES) - {s.UNATTRIBUTED}) == sorted(matched(PHASE))


def test_every_alert_without_a_phase_that_has_a_route_exists():
    """A name that is misspelt would match nothing."""
    names = {rule["alert"] for group in ALERTS["groups"] for rule in group["rules"]}

    assert set(matched("alertname")) <= names


def matched(label):
    """All values of `label` that have a route of their own."""
    matchers = [route["matchers"][0] for route in ALERTMANAGER["route"]["routes"]]
    return [
        value
        for matcher in matchers
        if matcher.startswith(label) and "!" not in matcher
        for value in matcher.split('"')[1].split("|")
    ]


def test_alerts_are_grouped_by_the_guilty_phase():
    """One incident is one notification, however many alerts point at it."""
    assert [PHASE] == ALERTMANAGER["route"]["group_by"]


def test_receivers_are_harmless():
    """The stack as shipped wakes nobody and calls nothing."""
    assert [{"name"}] * 3 == [set(receiver) for receiver in ALERTMANAGER["receivers"]]


@pytest.mark.parametrize("name", ["app", "vllm-cpu", "vllm-gpu"])
def test_what_serves_is_scraped(name):
    """The app and either engine are targets, under the names that they answer to."""
    networks = SERVICES[name].get("networks", {})
    names = {name, *networks.get("default", {}).get("aliases", ())}
    targets = {
        t for job in JOBS.values() for c in job.get("static_configs", ()) for t in c["targets"]
    }

    assert targets & {f"{each}:8000" for each in names}


def test_the_gpu_is_scraped_only_where_there_is_one():
    """The exporter is found by name, so that the CPU profile has no target that is down."""
    assert ["dcgm-exporter"] == JOBS["dcgm"]["dns_sd_configs"][0]["names"]
    assert "static_configs" not in JOBS["dcgm"]


def test_all_rules_are_mounted():
    """What dashboards/build.py generates is what Prometheus loads."""
    rules = {
        f"{INSIDE}rules/{name}": f"./dashboards/generated/{name}"
        for name in ("rules.yaml", "alerts.yaml")
    }

    assert rules.items() <= mounts("prometheus").items()
    assert ["rules/*.yaml"] == PROMETHEUS["rule_files"]


@pytest.mark.parametrize("kind", ["POWER_VIOLATION", "THERMAL_VIOLATION"])
def test_throttling_is_counted(kind):
    """The exporter reads why clocks dropped, which it leaves off by itself."""
    assert fields()[f"DCGM_FI_DEV_{kind}"] == "counter"


@pytest.mark.parametrize("kind", ["GR_ENGINE_ACTIVE", "PIPE_TENSOR_ACTIVE", "DRAM_ACTIVE"])
def test_the_bound_of_the_gpu_is_measured(kind):
    """The exporter reads what says compute-bound or memory-bound."""
    assert fields()[f"DCGM_FI_PROF_{kind}"] == "gauge"


def fields():
    """The exporter's fields and their types; each line has two commas."""
    lines = (DEPLOY / "dcgm" / "counters.csv").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.split(",")] for line in lines if line and line[0] != "#"]
    assert {3} == {len(row) for row in rows}
    return {name: kind for name, kind, _ in rows}


def test_the_scrape_interval_is_what_grafana_believes(datasources):
    """`$__rate_interval` is made from the data source's interval, which must be the real one."""
    believed = datasources["prometheus"]["jsonData"]["timeInterval"]

    assert PROMETHEUS["global"]["scrape_interval"] == believed


@pytest.fixture
def datasources():
    """Grafana's data sources by type."""
    file = ROOT / "dashboards" / "provisioning" / "datasources" / "llm_trace.yaml"
    return {source["type"]: source for source in read(file)["datasources"]}


def test_what_the_gpu_board_reads_is_collected():
    """Each of the exporter's series on a board is a field of the counters file."""
    boards = (ROOT / "dashboards" / "generated" / "boards").glob("*.json")
    used = {name for b in boards for name in re.findall(r"DCGM_FI_\w+", b.read_text("utf-8"))}

    assert used <= fields().keys()
