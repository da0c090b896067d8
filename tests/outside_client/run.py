"""Real vLLM under our middleware, measured by aiperf: `python -m tests.outside_client`."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from llm_trace import semconv as s
from tests.outside_client.compare import Held, Row, compare, hold, pair, served

ROOT: Final = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "end_to_end"))

from programs import clean_environment, eventually  # noqa: E402 - the helpers of the tests beside
from tap import OtelTap  # noqa: E402
from vllm_server import MODEL, SLOTS, VllmServer, make_model  # noqa: E402

AIPERF: Final = "aiperf==0.13.0"
TOKENS: Final = 64


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 where client and server disagree, 2 where it cannot be measured."""
    options = _options().parse_args(arguments)
    python = Path(os.environ.get("LLM_TRACE_VLLM_PYTHON") or ROOT / ".venv-vllm" / "bin" / "python")
    if not python.is_file():
        _say("outside client: there is no environment with vLLM: build it with `make vllm`")
        return 2
    client = find_client("aiperf", AIPERF)
    with tempfile.TemporaryDirectory() as folder:
        python = Path(os.path.abspath(python))  # noqa: PTH100 - resolving would leave the venv
        rows, held, notes = _measure(python, client, Path(folder), options)
    _say("\n".join([_table(rows), "", _held(held), "", *notes]))
    return 0 if all(found.agrees for found in (*rows, *held)) else 1


def _say(what: str) -> None:
    sys.stdout.write(what + "\n")
    sys.stdout.flush()


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.outside_client", description=__doc__)
    parser.add_argument("--requests", type=int, default=60, help="how many (default: 60)")
    parser.add_argument("--rate", type=float, default=3.0, help="requests a second (default: 3)")
    return parser


def find_client(name: str, *requirements: str) -> Path:
    """The command, in an environment of its own that is made at the first call (over 1 GB)."""
    env = ROOT / f".venv-{name}"
    command = env / "bin" / name
    if not command.is_file():
        _say(f"outside client: installs {requirements[0]} into {env.name}")
        subprocess.run([sys.executable, "-m", "venv", "--clear", env], check=True)
        pip = (env / "bin" / "python", "-m", "pip", "-qq", "--disable-pip-version-check")
        subprocess.run([*pip, "install", *requirements], check=True)
    return command


def _measure(
    python: Path, client: Path, folder: Path, options: argparse.Namespace
) -> tuple[list[Row], list[Held], list[str]]:
    tap = OtelTap(folder)
    model = make_model(python, folder)
    server = VllmServer(python, model, tap, folder)
    try:
        server.warm_up()
        records = _ask(client, server.port, model, folder, options)
        ids = {f"chatcmpl-{record['metadata']['x_request_id']}" for record in records}
        ours = eventually(
            lambda: (found := served(tap.spans())) and ids <= found.keys() and found,
            "not every request of the client has a trace",
            log=server.program,
        )
        pairs = pair(records, ours)
        return compare(pairs), _histograms(server.scrape(), records), _ways(pairs)
    finally:
        server.stop()
        tap.stop()


def _ask(client: Path, port: int, model: Path, folder: Path, options: Any) -> list[dict[str, Any]]:
    """The client's records, one a request."""
    artifacts = folder / "aiperf"
    command = (
        *(client, "profile", "--model", MODEL, "--url", f"http://127.0.0.1:{port}"),
        *("--endpoint-type", "chat", "--streaming", "--tokenizer", model, "--random-seed", "7"),
        *("--request-rate", options.rate, "--concurrency", 2 * SLOTS, "--ui-type", "none"),
        *("--request-count", options.requests, "--warmup-request-count", SLOTS),
        *("--synthetic-input-tokens-mean", 400, "--synthetic-input-tokens-stddev", 200),
        *("--output-tokens-mean", TOKENS, "--extra-inputs", "ignore_eos:true"),
        *("--extra-inputs", "temperature:1", "--use-server-token-count"),
        *("--workers-max", 1, "--artifact-dir", artifacts),
    )
    environment = clean_environment()
    environment.pop("HF_HUB_OFFLINE", None)  # aiperf takes a local tokenizer for a name then
    done = subprocess.run(
        [str(word) for word in command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"outside client: aiperf failed:\n{done.stdout}\n{done.stderr}")
    lines = (artifacts / "profile_export.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def _table(rows: Sequence[Row]) -> str:
    head = f"{'ms':24}{'percentile':>10}{'aiperf':>10}{'ours':>10}{'and the way':>13}"
    lines = [
        f"{row.what:24}{f'p{100 * row.percentile:g}':>10}{row.client:10.2f}{row.ours:10.2f}"
        f"{row.explained:13.2f}  {_word(row)}"
        for row in rows
    ]
    return "\n".join([head, *lines])


def _ways(pairs: Sequence[Any]) -> list[str]:
    there = sorted(x.way_there for x in pairs)
    back = sorted(x.client_ttft - x.served.ttft - x.way_there for x in pairs)
    middle = len(pairs) // 2
    return [
        f"{len(pairs)} requests.",
        f"The way there: median {there[middle]:.2f} ms, longest {there[-1]:.2f} ms.",
        f"The way back: median {back[middle]:.2f} ms, longest {back[-1]:.2f} ms.",
    ]


def _histograms(page: Any, records: Sequence[Any]) -> list[Held]:
    """Our own histograms of the server's whole life beside all that the client measured.

    The client's warm-up is in both; the server's own, in one piece, has no token on the way.
    """
    metrics = [record["metrics"] for record in records]
    ttft = [one["time_to_first_token"]["value"] for one in metrics]
    gaps = [gap for one in metrics for gap in one["inter_chunk_latency"]["value"]]
    return [
        *hold(s.TIME_TO_FIRST_TOKEN.prometheus, ttft, _buckets(page, s.TIME_TO_FIRST_TOKEN)),
        *hold(s.TIME_PER_OUTPUT_CHUNK.prometheus, gaps, _buckets(page, s.TIME_PER_OUTPUT_CHUNK)),
    ]


def _buckets(page: Any, metric: s.Metric) -> dict[float, float]:
    buckets: dict[float, float] = {}
    for sample in page.samples(f"{metric.prometheus}_bucket"):
        bound = float(sample.labels["le"])
        buckets[bound] = buckets.get(bound, 0.0) + sample.value
    return buckets


def _held(found: Sequence[Held]) -> str:
    lines = [
        f"{one.what:48}{f'p{100 * one.percentile:g}':>5}{one.client:10.2f} in "
        f"({one.low:g}, {one.high:g}]  {_word(one)}"
        for one in found
    ]
    return "\n".join(["our histogram, and aiperf's percentile in its bucket, ms", *lines])


def _word(found: Row | Held) -> str:
    return "agree" if found.agrees else "DISAGREE"
