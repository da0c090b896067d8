"""docker-compose.yml: both profiles are valid, hardened, and closed to everybody else."""

from __future__ import annotations

import json
import os
import re

import pytest
from stack_files import (
    COMPOSE,
    DEPLOY,
    DOCKERFILE,
    ROOT,
    SECRETS,
    SERVICES,
    dockerfile,
    mounts,
    read,
)
from stack_tools import run

from llm_trace.demo.engine import _VLLM_FLAGS

PROFILES = ("cpu", "gpu")
EVERYWHERE = {
    *("app", "load", "collector", "tempo"),
    *("prometheus", "alertmanager", "grafana"),
}
ENGINES = {"cpu": {"vllm-cpu"}, "gpu": {"vllm-gpu", "dcgm-exporter"}}
WRITERS = {"vllm-gpu", "dcgm-exporter"}
"""Services that cannot run on a read-only file system; the file says why."""
VERSION = re.compile(r":v?\d+\.\d+(\.\d+)?[\w.-]*$")
SECRET = re.compile(r"password|secret|token|api_key", re.IGNORECASE)
NONE_SET = {key: value for key, value in os.environ.items() if key not in SECRETS}

each_service = pytest.mark.parametrize("name", SERVICES)
each_profile = pytest.mark.parametrize("profile", PROFILES)


def config(compose, *arguments, env=SECRETS):
    """What Compose makes of the file; its status and what it said."""
    without_file = {"COMPOSE_DISABLE_ENV_FILE": "1", "COMPOSE_PROFILES": ""}
    whole = {**NONE_SET, **without_file, **env}
    return run(compose, "-f", COMPOSE, *arguments, env=whole)


def document(compose, profile):
    """The whole file as Compose understands it."""
    status, said = config(compose, "--profile", profile, "config", "--format", "json")
    assert 0 == status, said
    return json.loads(said)


@pytest.mark.services
@each_profile
def test_compose_takes_the_file(compose, profile):
    """Compose itself finds nothing wrong with either profile."""
    assert (0, "") == config(compose, "--profile", profile, "config", "-q")


@pytest.mark.services
@each_profile
def test_a_profile_starts_the_stack_and_its_own_engine(compose, profile):
    """A profile has one engine, and everything else is the same in both."""
    assert EVERYWHERE | ENGINES[profile] == set(document(compose, profile)["services"])


@pytest.mark.services
@each_profile
def test_compose_binds_to_loopback_only(compose, profile):
    """As Compose understands it, no port is published beyond the host itself."""
    services = document(compose, profile)["services"].values()
    hosts = {port["host_ip"] for service in services for port in service.get("ports", ())}

    assert {"127.0.0.1"} == hosts


@pytest.mark.services
@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("given", ["", None], ids=["empty", "missing"])
def test_nothing_starts_without_a_secret(compose, secret, given):
    """An empty or missing password is refused with a sentence that says what to do."""
    env = {key: value for key, value in SECRETS.items() if key != secret}
    env = env if given is None else {**env, secret: given}
    status, said = config(compose, "--profile", "cpu", "config", "-q", env=env)

    assert 0 != status
    assert f"{secret} is missing a value: copy deploy/env.example to .env" in said


def test_the_example_of_settings_leaves_the_secrets_empty():
    """Whoever copies it has to think of a password, and gets the CPU profile."""
    lines = (DEPLOY / "env.example").read_text(encoding="utf-8").splitlines()
    settings = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))

    assert dict.fromkeys(SECRETS, "") == {name: settings[name] for name in SECRETS}
    assert "cpu" == settings["COMPOSE_PROFILES"]


@each_service
def test_every_port_is_written_with_loopback(name):
    """Each published port says 127.0.0.1 itself, so that no default decides."""
    ports = SERVICES[name].get("ports", [])

    assert [] == [port for port in ports if not re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port)]


@each_service
def test_nothing_shares_the_host(name):
    """No service is privileged or uses the network or processes of the host."""
    service = SERVICES[name]

    assert "privileged" not in service
    assert "host" not in {service.get(key) for key in ("network_mode", "pid", "ipc")}


@each_service
def test_every_image_is_pinned(name):
    """An image is named with a version, or built from a target that exists."""
    service = SERVICES[name]
    if "image" in service:
        assert VERSION.search(service["image"])
    else:
        build = service["build"]
        assert ROOT / build["dockerfile"] == DOCKERFILE
        assert build["target"] in {line.split(" AS ")[1] for line in dockerfile("FROM")}


@each_service
def test_every_service_has_a_health_check(name):
    """`up --wait` waits for what each service says of itself, for a bounded time."""
    check = SERVICES[name]["healthcheck"]

    assert check["test"][0] in {"CMD", "CMD-SHELL"}
    assert {"interval", "timeout", "retries", "start_period"} <= check.keys()


@each_service
def test_every_service_starts_again(name):
    """What dies is started again; the load only when it failed."""
    expected = "on-failure" if name == "load" else "unless-stopped"

    assert expected == SERVICES[name]["restart"]


@each_service
def test_every_service_is_limited(name):
    """Processor, memory and processes are bounded, and so are logs."""
    service = SERVICES[name]

    assert {"cpus", "memory", "pids"} == service["deploy"]["resources"]["limits"].keys()
    assert {"max-size", "max-file"} == service["logging"]["options"].keys()


@each_service
def test_every_service_is_hardened(name):
    """No capabilities, no new privileges, and a read-only file system where that is possible."""
    service = SERVICES[name]

    assert ["ALL"] == service["cap_drop"]
    assert ["no-new-privileges:true"] == service["security_opt"]
    assert (name in WRITERS) is not service.get("read_only", False)
    assert service.get("cap_add", []) == (["SYS_ADMIN"] if name == "dcgm-exporter" else [])


@each_service
def test_no_secret_is_written_down(name):
    """Whatever is called like a secret comes from a variable that must be given."""
    environment = SERVICES[name].get("environment", {})
    secrets = {key: value for key, value in environment.items() if SECRET.search(key)}

    assert {} == {key: value for key, value in secrets.items() if ":?" not in value}


@each_service
def test_what_is_mounted_exists(name):
    """Files come from this repository and are read-only; data lies in a named volume."""
    volumes = read(COMPOSE)["volumes"]
    for volume in SERVICES[name].get("volumes", ()):
        outside = volume.split(":")[0]
        if outside.startswith("./"):
            assert (ROOT / outside).exists(), volume
            assert volume.endswith(":ro"), volume
        else:
            assert outside in volumes


@pytest.mark.parametrize("engine", ["vllm-cpu", "vllm-gpu"])
def test_vllm_is_served_with_the_middleware(engine):
    """Both engines carry the middleware, answer to one name, and serve the app's model."""
    service = SERVICES[engine]

    assert "--middleware=llm_trace.TraceMiddleware" in service["command"]
    assert {"default": {"aliases": ["vllm"]}} == service["networks"]
    assert (
        f"--served-model-name={SERVICES['app']['environment']['DEMO_MODEL']}" in service["command"]
    )


def test_vllm_on_a_cpu_is_served_as_in_the_demo():
    """The flags are those that the demo was tried with."""
    words = [word for flag in SERVICES["vllm-cpu"]["command"] for word in flag.split("=", 1)]

    assert set(_VLLM_FLAGS) <= set(words)


@pytest.mark.parametrize("name", ["app", "vllm-cpu", "vllm-gpu"])
def test_traces_go_to_the_collector_and_metrics_are_scraped(name):
    """What is observed sends spans to the Collector and no metrics a second time."""
    environment = SERVICES[name]["environment"]

    assert "http://collector:4318" == environment["OTEL_EXPORTER_OTLP_ENDPOINT"]
    assert "none" == environment["OTEL_METRICS_EXPORTER"]


def test_prometheus_keeps_exemplars():
    """Without this switch no dot on a panel leads to a trace."""
    assert "--enable-feature=exemplar-storage" in SERVICES["prometheus"]["command"]


@pytest.mark.parametrize("service", SERVICES)
def test_a_configuration_that_is_named_is_mounted(service):
    """Each configuration file that a command names lies where it is looked for."""
    words = " ".join(map(str, SERVICES[service].get("command", ())))
    named = re.findall(r"/etc/[\w./-]+", words)

    assert [] == [path for path in named if path not in mounts(service)]
