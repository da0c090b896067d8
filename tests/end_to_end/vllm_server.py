"""Real vLLM on a CPU, with a tiny model, under our middleware."""

from __future__ import annotations

import os
import subprocess
from types import MappingProxyType

from programs import LOOPBACK, Program, clean_environment, free_port, listens
from scrape import scrape
from stamped_client import ask

MODEL = "tiny"
SLOTS = 4
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
SAMPLED = {"temperature": 1}
"""The likeliest words of a random model may be one that shows nothing, over and over.

No seed: on a CPU, vLLM 0.32 dies of one as soon as such a prompt is computed in chunks."""
SHOWN = {"allowed_token_ids": [3]}
"""Nothing but an exclamation mark: of any other token, some one in fourteen shows nothing."""
SABOTAGE = {"x-test-sabotage": "yes"}

SMALL = ("--hidden", "128", "--layers", "2", "--max-len", "16384")

_QUIET = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_HOST_IP": LOOPBACK,
    "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "120",
}
_FLAGS = (
    *("--dtype", "bfloat16", "--enforce-eager", "--load-format", "dummy"),
    *("--max-model-len", "16384", "--max-num-seqs", SLOTS, "--max-num-batched-tokens", "512"),
    *("--block-size", "32", "--kv-cache-memory-bytes", 128 << 20),
    *(
        "--enable-prompt-tokens-details",
        "--enable-per-request-metrics",
        "--disable-uvicorn-access-log",
    ),
)


def make_model(python, folder, sizes=SMALL):
    """A model with random weights."""
    out = folder / "model"
    command = [python, "-m", "llm_trace.demo.model", out, *sizes]
    env = clean_environment(**_QUIET)
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


def chat(words, tokens, **more):
    """A streamed chat about `words`, of exactly so many tokens."""
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": words}],
        "max_tokens": tokens,
        "ignore_eos": True,
        "stream": True,
        **SAMPLED,
    }
    return {**body, **more}


def completion(prompt, tokens, **more):
    """A plain completion of exactly so many tokens."""
    body = {"model": MODEL, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True}
    return {**body, **SAMPLED, **more}


class VllmServer:
    """`vllm serve`; `tap` receives its spans, and vLLM's own, over HTTP.

    `flags` come after the usual ones and beat them; `inner` is the middleware inside ours.
    """

    haste = MappingProxyType(
        {"OTEL_BSP_SCHEDULE_DELAY": "200", "OTEL_METRIC_EXPORT_INTERVAL": "1000"}
    )
    """A test does not wait as long as a collector does."""

    def __init__(
        self, python, model, tap, folder, flags=(), inner="planter.Planter", **environment
    ):
        self.port = free_port()
        self.tap = tap
        self.headers = {}
        """What everybody who asks has to send."""
        env = clean_environment(
            **_QUIET,
            PYTHONPATH=os.pathsep.join(
                [__file__.rpartition("/")[0], *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
            ),
            OTEL_EXPORTER_OTLP_ENDPOINT=tap.endpoint,
            OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
            OTEL_EXPORTER_OTLP_TRACES_PROTOCOL="http/protobuf",
            OTEL_SERVICE_NAME="vllm",
            **self.haste,
            **environment,
        )
        command = [
            *(python.parent / "vllm", "serve", model, "--served-model-name", MODEL),
            *("--host", LOOPBACK, "--port", self.port, *_FLAGS),
            *self._layers(inner),
            *flags,
        ]
        self.program = Program(command, folder / "vllm.log", env=env)
        self.program.stand_back()

    def _layers(self, inner):
        """What it is told of tracing: our middleware, another inside of it, and its own spans."""
        return (
            *("--middleware", inner),
            *("--middleware", "llm_trace.TraceMiddleware"),
            *("--otlp-traces-endpoint", f"{self.tap.endpoint}/v1/traces"),
        )

    def warm_up(self):
        """Wait until it serves; a first prompt of more than four tokens readies the kernels."""
        self.program.ready(self._healthy, "vLLM", within=240)
        answer = self.ask(COMPLETIONS, completion("one two three four five six seven", 4))
        assert answer.status == 200, self.program.tail()

    def _healthy(self):
        return listens(self.port) and ask(self.port, "/health").status == 200

    def ask(self, path, body=None, **more):
        """A whole exchange."""
        headers = {**self.headers, **more.pop("headers", {})}
        return ask(self.port, path, body, headers=headers, **more)

    def scrape(self):
        """Its metrics page."""
        return scrape(self.port)

    def stop(self):
        """End it with all its processes."""
        self.program.stop()
