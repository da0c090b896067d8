"""The stack's files, read."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
COMPOSE = ROOT / "docker-compose.yml"
DOCKERFILE = DEPLOY / "images" / "Dockerfile"
PROVISIONING = ROOT / "dashboards" / "provisioning"
GENERATED = ROOT / "dashboards" / "generated"
SECRETS = {"GRAFANA_ADMIN_PASSWORD": "for-the-test", "DEMO_API_KEY": "for-the-test"}
"""What must be given before the stack starts."""


def read(path):
    """The only document of a YAML file."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


SERVICES = read(COMPOSE)["services"]
COLLECTOR = read(DEPLOY / "collector" / "collector.yaml")
PROMETHEUS = read(DEPLOY / "prometheus" / "prometheus.yml")
ALERTMANAGER = read(DEPLOY / "alertmanager" / "alertmanager.yml")
TEMPO = read(DEPLOY / "tempo" / "tempo.yaml")
DATASOURCES = read(PROVISIONING / "datasources" / "llm_trace.yaml")["datasources"]


def mounts(service):
    """What a service mounts: the path inside, and the host's path or the volume's name."""
    parts = (volume.split(":") for volume in SERVICES[service].get("volumes", ()))
    return {inside: outside for outside, inside, *_ in parts}


def dockerfile(instruction):
    """What follows `instruction` on each of the Dockerfile's lines that begin with it."""
    return re.findall(
        rf"^{instruction} (.+)$", DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE
    )
