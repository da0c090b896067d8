"""The Kubernetes files: kustomize takes them, and the rules in them are today's."""

from __future__ import annotations

import sys

import pytest
import yaml
from stack_files import GENERATED, KUBERNETES, read
from stack_tools import run

OVERLAYS = ("cpu", "gpu")
RULE = KUBERNETES / "base" / "prometheus-rule.yaml"
FILES = sorted(KUBERNETES.rglob("*.yaml"))
GUARD = "--middleware=llm_trace.TraceMiddleware"

each_overlay = pytest.mark.parametrize("overlay", OVERLAYS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(KUBERNETES)))
def test_a_file_is_yaml(path):
    """Each file holds one document with something in it."""
    assert read(path)


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if path.name == "kustomization.yaml"],
    ids=lambda p: p.parent.name,
)
def test_what_a_kustomization_names_exists(path):
    """Resources, components and patches lie where it says."""
    content = read(path)
    named = [*content.get("resources", ()), *content.get("components", ())]
    named += [patch["path"] for patch in content.get("patches", ()) if "path" in patch]

    assert [] == [name for name in named if not (path.parent / name).exists()]


def test_the_rules_have_not_drifted():
    """The PrometheusRule is what the script makes of the generated rules now."""
    assert (0, "") == run(sys.executable, KUBERNETES / "rules.py", "--check")


def test_the_rules_are_all_there_and_unchanged():
    """Its groups are the groups of both rule files, expression for expression."""
    groups = [g for name in ("rules.yaml", "alerts.yaml") for g in read(GENERATED / name)["groups"]]

    assert groups == read(RULE)["spec"]["groups"]


def test_an_unknown_argument_of_the_script_is_refused():
    """It says how it is used."""
    status, said = run(sys.executable, KUBERNETES / "rules.py", "--chekc")

    assert 2 == status
    assert "use `python deploy/kubernetes/rules.py [--check]`" in said


@pytest.fixture(scope="module")
def built(kubectl):
    """What kustomize makes of an overlay: its documents by kind and name."""

    def built(overlay):
        status, said = run(kubectl, "kustomize", KUBERNETES / "overlays" / overlay)
        assert 0 == status, said
        documents = yaml.safe_load_all(said)
        return {(each["kind"], each["metadata"]["name"]): each for each in documents}

    return built


def container(documents):
    """The engine's container."""
    (only,) = documents["Deployment", "vllm"]["spec"]["template"]["spec"]["containers"]
    return only


@pytest.mark.services
@each_overlay
def test_kustomize_builds_an_overlay(built, overlay):
    """Each has the engine, what scrapes it, and the rules."""
    expected = {
        ("Deployment", "vllm"),
        ("Service", "vllm"),
        ("ServiceMonitor", "vllm"),
        ("PrometheusRule", "llm-trace"),
    }
    more = {("ServiceMonitor", "dcgm-exporter")} if overlay == "gpu" else set()

    assert expected | more == built(overlay).keys()


@pytest.mark.services
@each_overlay
def test_the_engine_carries_the_middleware(built, overlay):
    """The component adds it once, after the model, with where to send traces."""
    engine = container(built(overlay))

    assert GUARD == engine["args"][-1]
    assert 1 == engine["args"].count(GUARD)
    assert {"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_SERVICE_NAME"} <= {
        e["name"] for e in engine["env"]
    }


@pytest.mark.services
@each_overlay
def test_the_engine_is_pinned_probed_limited_and_hardened(built, overlay):
    """As in the compose file, in Kubernetes's words."""
    engine = container(built(overlay))

    assert "0.1.0" == engine["image"].rpartition(":")[2]
    assert {"startupProbe", "readinessProbe", "livenessProbe"} <= engine.keys()
    assert "memory" in engine["resources"]["limits"]
    assert engine["securityContext"]["allowPrivilegeEscalation"] is False
    assert ["ALL"] == engine["securityContext"]["capabilities"]["drop"]


@pytest.mark.services
@each_overlay
def test_the_service_monitor_finds_the_engine(built, overlay):
    """Its labels select the Service, and its port is one of the Service's."""
    documents = built(overlay)
    monitor, service = documents["ServiceMonitor", "vllm"]["spec"], documents["Service", "vllm"]

    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["endpoints"][0]["port"] in {port["name"] for port in service["spec"]["ports"]}
