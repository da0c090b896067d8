"""The Dockerfile: pinned, lint-free, and made of what its context really holds."""

from __future__ import annotations

import re

import pytest
from stack_files import DOCKERFILE, ROOT, SERVICES, dockerfile
from stack_tools import run

VLLM = re.compile(r'^VLLM = "(.+)"$', re.MULTILINE)


@pytest.mark.services
def test_hadolint_finds_nothing(hadolint):
    """The linter for Dockerfiles is content."""
    assert (0, "") == run(hadolint, "--no-color", DOCKERFILE)


@pytest.mark.parametrize("line", dockerfile("FROM"))
def test_every_base_is_pinned(line):
    """A base image has a version, to the patch where it says so."""
    assert re.match(r"\S+:v?\d+\.\d+\.\d+\S* AS [\w-]+$", line)


def test_every_target_is_used():
    """A stage is a service's, or another stage copies from it."""
    text = DOCKERFILE.read_text(encoding="utf-8")
    stages = {line.split(" AS ")[1] for line in dockerfile("FROM")}
    built = {service["build"]["target"] for service in SERVICES.values() if "build" in service}

    assert stages == built | set(re.findall(r"from=([\w-]+)", text))


def test_what_is_copied_is_in_the_context():
    """Each path that is copied exists, and the ignore file lets it in."""
    words = [line.split()[:-1] for line in dockerfile("COPY") if not line.startswith("--from")]
    copied = {path for paths in words for path in paths}
    ignore = DOCKERFILE.with_name("Dockerfile.dockerignore").read_text(encoding="utf-8")
    let_in = {line[1:] for line in ignore.splitlines() if line.startswith("!")}

    assert copied == let_in
    assert [] == [path for path in copied if not (ROOT / path).exists()]


def test_both_engines_are_the_version_that_was_tried():
    """The GPU's official image is the release that the CPU environment is built from."""
    build = (ROOT / "integrations" / "vllm" / "cpu" / "build.py").read_text(encoding="utf-8")

    assert f"vllm/vllm-openai:v{VLLM.search(build)[1]} AS vllm-gpu" in dockerfile("FROM")


def test_the_command_is_found_where_vllm_has_an_environment_of_its_own():
    """`kubectl exec` asks no shell: on-call types `llm-trace doctor` as the page says."""
    [environment] = re.findall(r"--into (\S+)", DOCKERFILE.read_text(encoding="utf-8"))

    assert any(f"PATH={environment}/bin:$PATH" in line for line in dockerfile("ENV"))
