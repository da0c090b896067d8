"""`llm-trace bench` and aiperf on one real vLLM, in turns: `python -m tests.outside_client.bench`.

Each client asks for prompts that the server cannot know, one at a time. The turns are aiperf,
bench, bench, aiperf, so that a machine that grows slower favours neither. Status 1 where the
medians of the time to first token differ by more than 5 % and 2 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final, NamedTuple

from tests.outside_client.compare import ABSOLUTE, RELATIVE
from tests.outside_client.run import ROOT, find_client

sys.path.insert(0, str(ROOT / "tests" / "end_to_end"))

from programs import clean_environment
from tap import OtelTap
from vllm_server import MODEL, VllmServer, make_model

TOKENS: Final = 8
LENGTHS: Final = (256, 1024, 3072)


class Turns(NamedTuple):
    """The medians of one length, in ms, one a turn."""

    tokens: int
    aiperf: Sequence[float]
    bench: Sequence[float]

    @property
    def agree(self) -> bool:
        """Within 5 % or 2 ms, whichever is more."""
        one, other = fmean(self.aiperf), fmean(self.bench)
        return abs(one - other) <= max(RELATIVE * one, ABSOLUTE)

    def __str__(self) -> str:
        shown = (", ".join(f"{ms:.2f}" for ms in turns) for turns in (self.aiperf, self.bench))
        difference = fmean(self.bench) - fmean(self.aiperf)
        word = "agree" if self.agree else "DISAGREE"
        return "{:>6}  {:>16}  {:>16}  {:>+7.2f}  {}".format(self.tokens, *shown, difference, word)


class Server(NamedTuple):
    """What both clients ask."""

    url: str
    model: Path
    folder: Path
    aiperf: Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 where the clients disagree, 2 where it cannot be measured."""
    parser = argparse.ArgumentParser("python -m tests.outside_client.bench", description=__doc__)
    parser.add_argument("--requests", type=int, default=25, help="a turn (default: 25)")
    requests = parser.parse_args(arguments).requests
    python = Path(os.environ.get("LLM_TRACE_VLLM_PYTHON") or ROOT / ".venv-vllm" / "bin" / "python")
    if not python.is_file():
        _say("outside client: there is no environment with vLLM: build it with `make vllm`")
        return 2
    client = find_client()
    with tempfile.TemporaryDirectory() as folder:
        found = _measure(Path(os.path.abspath(python)), client, Path(folder), requests)  # noqa: PTH100 - resolving would leave the venv
    return 0 if all(turns.agree for turns in found) else 1


def _say(what: str) -> None:
    sys.stdout.write(what + "\n")
    sys.stdout.flush()


def _measure(python: Path, client: Path, folder: Path, requests: int) -> list[Turns]:
    tap = OtelTap(folder)
    model = make_model(python, folder)
    server = VllmServer(python, model, tap, folder)
    try:
        server.warm_up()
        asked = Server(f"http://127.0.0.1:{server.port}", model, folder, client)
        _say(f"{'tokens':>6}  {'aiperf, ms':>16}  {'bench, ms':>16}  {'b - a':>7}")
        found = []
        for length in LENGTHS:
            found.append(_turns(asked, length, requests))
            _say(str(found[-1]))
        return found
    finally:
        server.stop()
        tap.stop()


def _turns(server: Server, length: int, requests: int) -> Turns:
    first, tokens = _aiperf(server, length, requests, seed=1)
    ours = [_bench(server, tokens, requests) for _ in range(2)]
    last, _ = _aiperf(server, length, requests, seed=2)
    return Turns(tokens, (first, last), ours)


def _aiperf(server: Server, length: int, requests: int, seed: int) -> tuple[float, int]:
    """Its median TTFT in ms, and the median of the prompt tokens that the server counted."""
    artifacts = server.folder / f"aiperf-{length}-{seed}"
    words = (
        *(server.aiperf, "profile", "--model", MODEL, "--url", server.url, "--streaming"),
        *("--endpoint-type", "chat", "--tokenizer", server.model, "--ui-type", "none"),
        *("--concurrency", 1, "--request-count", requests, "--warmup-request-count", 3),
        *("--synthetic-input-tokens-mean", length, "--synthetic-input-tokens-stddev", 0),
        *("--output-tokens-mean", TOKENS, "--extra-inputs", "ignore_eos:true"),
        *("--extra-inputs", "temperature:1", "--use-server-token-count"),
        *("--random-seed", 1000 * length + seed, "--workers-max", 1, "--artifact-dir", artifacts),
    )
    environment = clean_environment()
    environment.pop("HF_HUB_OFFLINE", None)  # aiperf takes a local tokenizer for a name then
    _run(words, environment)
    lines = (artifacts / "profile_export.jsonl").read_text(encoding="utf-8").splitlines()
    metrics = [json.loads(line)["metrics"] for line in lines]
    tokens = median(_value(one, "input_sequence_length") for one in metrics)
    return median(_value(one, "time_to_first_token") for one in metrics), round(tokens)


def _value(metrics: Any, name: str) -> float:
    return float(metrics[name]["value"])


def _bench(server: Server, tokens: int, requests: int) -> float:
    """Our median TTFT of a new prefix, in ms."""
    words = (
        *(sys.executable, "-m", "llm_trace.cli", "bench", server.url, "--json"),
        *("--lengths", tokens, "--requests", requests, "--max-tokens", TOKENS),
        *("--body", '{"temperature": 1}'),
    )
    document = json.loads(_run(words, clean_environment()))
    return 1e3 * float(document["cells"][0]["ttft"]["median"])


def _run(words: Sequence[object], environment: dict[str, str]) -> str:
    command = [str(word) for word in words]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    if done.returncode:
        raise SystemExit(f"outside client: {command[0]} failed:\n{done.stdout}\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
