"""The engine behind the demo's app: real vLLM where there is one, else a simulated server."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from llm_trace.demo.errors import DemoError
from llm_trace.demo.ports import LOOPBACK
from llm_trace.demo.process import Child
from llm_trace.demo.receiver import TRACES_PATH

if TYPE_CHECKING:
    from collections.abc import Mapping

SLOTS: Final = 4
APP_SERVICE: Final = "rag-app"
VLLM_SERVICE: Final = "vllm"
SIMULATED_SERVICE: Final = "engine-SIMULATED"
MODEL: Final = "demo-tiny"
_KV_CACHE_BYTES: Final = 128 << 20
_VLLM_FLAGS: Final = (
    *("--dtype", "bfloat16", "--enforce-eager", "--max-model-len", "4096"),
    *("--max-num-seqs", str(SLOTS), "--max-num-batched-tokens", "512", "--block-size", "32"),
    *("--kv-cache-memory-bytes", str(_KV_CACHE_BYTES), "--enable-prompt-tokens-details"),
    "--disable-uvicorn-access-log",
)
_SET_ASIDE: Final = ("OTEL_", "LLM_TRACE_")
_VLLM_ENV: Final = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_HOST_IP": LOOPBACK,
}


@dataclass(frozen=True, slots=True)
class Engine:
    """Which engine the demo runs on."""

    python: Path | None
    """vLLM's Python; None simulates."""
    version: str
    """vLLM's."""
    why: str
    """The reason for simulating; empty otherwise."""

    @property
    def simulated(self) -> bool:
        """Whether there is no engine behind the numbers."""
        return self.python is None

    @property
    def service(self) -> str:
        """Its `service.name`."""
        return SIMULATED_SERVICE if self.simulated else VLLM_SERVICE

    @property
    def title(self) -> str:
        """What the screen calls it."""
        if self.simulated:
            return "a SIMULATED engine"
        return f"vLLM {self.version}" + (" on this CPU" if "cpu" in self.version else "")


def check_model(model: Path) -> Path:
    """Return the model's directory when vLLM could load one from it."""
    if not (model / "config.json").is_file():
        raise DemoError(
            f"{model} is no model directory, it has no config.json: give one that "
            "`vllm serve` can load, or leave --model out for a tiny random one."
        )
    return model


def environment(service: str, endpoint: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Build the environment of an exporting program, free of the shell's own telemetry settings."""
    kept = {key: value for key, value in environ.items() if not key.startswith(_SET_ASIDE)}
    return kept | {
        "NO_PROXY": f"{LOOPBACK},localhost",
        "no_proxy": f"{LOOPBACK},localhost",
        "OTEL_SERVICE_NAME": service,
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
        "OTEL_BSP_SCHEDULE_DELAY": "500",
        "PYTHONUNBUFFERED": "1",
    }


def model_maker(python: Path, out: Path, log: Path) -> Child:
    """Prepare the program that makes the tiny model."""
    command = [_absolute(python), "-m", "llm_trace.demo.model", str(out)]
    return Child("model maker", command, {**os.environ, **_VLLM_ENV}, log)


def vllm_server(python: Path, model: Path, port: int, endpoint: str, log: Path) -> Child:
    """Prepare `vllm serve` with llm_trace's middleware, traced to the receiver."""
    weights = "auto" if any(model.glob("*.safetensors")) else "dummy"
    binaries = Path(_absolute(python)).parent
    command = [
        *(str(binaries / "vllm"), "serve", str(model), "--served-model-name", MODEL),
        *("--host", LOOPBACK, "--port", str(port), "--load-format", weights, *_VLLM_FLAGS),
        *("--middleware", "llm_trace.TraceMiddleware"),
        *("--otlp-traces-endpoint", endpoint + TRACES_PATH),
    ]
    env = environment(VLLM_SERVICE, endpoint, os.environ) | _VLLM_ENV
    return Child("vLLM server", command, env, log)


def simulated_server(port: int, endpoint: str, log: Path) -> Child:
    """Prepare the simulated engine."""
    env = environment(SIMULATED_SERVICE, endpoint, os.environ) | {"DEMO_ENGINE_SLOTS": str(SLOTS)}
    command = _uvicorn("llm_trace.demo.simulated:create", port)
    return Child("SIMULATED engine", command, env, log)


def app_server(port: int, engine_url: str, api_key: str, endpoint: str, log: Path) -> Child:
    """Prepare the RAG service."""
    wiring = {"DEMO_ENGINE_URL": engine_url, "DEMO_MODEL": MODEL, "DEMO_API_KEY": api_key}
    env = environment(APP_SERVICE, endpoint, os.environ) | wiring
    return Child("RAG app", _uvicorn("llm_trace.demo.app:create", port), env, log)


def _uvicorn(factory: str, port: int) -> list[str]:
    where = ["--host", LOOPBACK, "--port", str(port), "--no-access-log"]
    return [sys.executable, "-m", "uvicorn", "--factory", factory, *where]


def _absolute(python: Path) -> str:
    """Make the path absolute without following links: a venv's python is a link out of it."""
    return os.path.abspath(python)  # noqa: PTH100 - resolving would leave the venv
