"""What the end-to-end tests share: receivers, and one real vLLM server for the whole session."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from programs import LOOPBACK
from prometheus_programs import find_programs
from rag import stream
from stamped_client import ask
from tap import OtelTap
from uvicorn_server import serving
from vllm_server import CHAT, VllmServer, make_model

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def vllm_python():
    """The Python that has vLLM."""
    named = os.environ.get("LLM_TRACE_VLLM_PYTHON") or ROOT / ".venv-vllm" / "bin" / "python"
    python = Path(os.path.abspath(named))  # noqa: PTH100 - resolving would leave the venv
    if not python.is_file():
        pytest.skip("there is no environment with vLLM: build it with `make vllm`")
    return python


@pytest.fixture(scope="session")
def vllm_tap(tmp_path_factory):
    """The receiver that the vLLM server exports to."""
    tap = OtelTap(tmp_path_factory.mktemp("tap"))
    yield tap
    tap.stop()


@pytest.fixture(scope="session")
def vllm(vllm_python, vllm_tap, tmp_path_factory):
    """A real vLLM server with four slots, warm, under our middleware."""
    folder = tmp_path_factory.mktemp("vllm")
    server = VllmServer(vllm_python, make_model(vllm_python, folder), vllm_tap, folder)
    try:
        server.warm_up()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def rag(vllm, tmp_path_factory):
    """A RAG app in front of that vLLM, which has answered once."""
    started = []
    engine = f"http://{LOOPBACK}:{vllm.port}"
    server = serving(started, tmp_path_factory.mktemp("rag"), "rag:create", RAG_ENGINE=engine)
    try:
        assert ask(server.port, CHAT, stream("the first question of all", 4)).status == 200
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def prometheus_programs():
    """The directory that holds `prometheus` and `promtool`."""
    found = find_programs(ROOT / ".cache" / "prometheus")
    if found is None:
        pytest.skip("there is no Prometheus: install Debian's package `prometheus`")
    return found


@pytest.fixture
def tap(tmp_path):
    """A receiver of one test's own."""
    tap = OtelTap(tmp_path)
    yield tap
    tap.stop()


@pytest.fixture
def programs(tmp_path):
    """A list: what a test starts and puts here is ended with it, to the last process."""
    started = []
    yield started
    for program in reversed(started):
        program.stop()
