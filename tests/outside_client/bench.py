"""Our benchmark and guidellm on one real vLLM: `python -m tests.outside_client.bench`.

Each client asks for prompts that the server cannot know, one at a time. The turns are guidellm,
bench, bench, guidellm, so that a machine that grows slower favours neither. Status 1 is where the
medians of the time to first token differ by more than 5 % and 2 ms. It may be the server that was
slower in one client's turns: so what each client adds to the server's own ledger of the same
requests is compared as well, and where only the server differed, the last column says so.

guidellm gets its prompts in a file. Where it makes them itself, it does so while it measures, with
a processor's worth of work beside the server.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Final, NamedTuple

from llm_trace import semconv as s
from tests.outside_client.compare import ABSOLUTE, RELATIVE
from tests.outside_client.run import ROOT, find_client

sys.path.insert(0, str(ROOT / "tests" / "end_to_end"))

from programs import clean_environment, eventually
from tap import OtelTap
from vllm_server import MODEL, VllmServer, make_model

GUIDELLM: Final = ("guidellm==0.8.1", "torch==2.13.0")
TOKENS: Final = 8
LENGTHS: Final = (96, 384, 1152)
WARM_UP: Final = 50
"""Requests of guidellm that are not counted: it still starts while it sends the first."""
WORDS: Final = ("north", "window", "seven", "rain", "letter", "cold", "bridge", "often", "glass")
AGREE: Final = "agree"


class Turn(NamedTuple):
    """What one client measured in one turn: medians, in ms."""

    ttft: float
    outside: float
    """Its TTFT less the server's own, request by request."""


class Turns(NamedTuple):
    """Both clients at one length."""

    tokens: int
    guidellm: Sequence[Turn]
    bench: Sequence[Turn]

    @property
    def word(self) -> str:
        """Whether they agree, and if not, whether it was the server."""
        near = max(RELATIVE * fmean(turn.ttft for turn in self.guidellm), ABSOLUTE)
        ttft, outside = (
            abs(fmean(turn[at] for turn in self.guidellm) - fmean(turn[at] for turn in self.bench))
            for at in (0, 1)
        )
        if outside > near:
            return "DISAGREE"
        return AGREE if ttft <= near else "the server differed"

    def __str__(self) -> str:
        shown = (
            " ".join(f"{turn[at]:.2f}".rjust(7) for turn in turns)
            for at in (0, 1)
            for turns in (self.guidellm, self.bench)
        )
        return "{:>6}  {}  {}  {}  {}  {}".format(self.tokens, *shown, self.word)


HEAD: Final = (
    f"{'tokens':>6}  {'guidellm, ms':>15}  {'bench, ms':>15}"
    f"  {'less the server':>15}  {'likewise':>15}"
)


class Server(NamedTuple):
    """What both clients ask."""

    url: str
    model: Path
    folder: Path
    guidellm: Path
    tap: OtelTap


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 where the clients disagree, 2 where it cannot be measured."""
    parser = argparse.ArgumentParser("python -m tests.outside_client.bench", description=__doc__)
    parser.add_argument("--requests", type=int, default=40, help="a turn (default: 40)")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="prompt words")
    options = parser.parse_args(arguments)
    python = Path(os.environ.get("LLM_TRACE_VLLM_PYTHON") or ROOT / ".venv-vllm" / "bin" / "python")
    if not python.is_file():
        _say("outside client: there is no environment with vLLM: build it with `make vllm`")
        return 2
    client = find_client("guidellm", *GUIDELLM)
    with tempfile.TemporaryDirectory() as folder:
        found = _measure(Path(os.path.abspath(python)), client, Path(folder), options)  # noqa: PTH100 - resolving would leave the venv
    return int(any(turns.word != AGREE for turns in found))


def _say(what: str) -> None:
    sys.stdout.write(what + "\n")
    sys.stdout.flush()


def _measure(python: Path, client: Path, folder: Path, options: argparse.Namespace) -> list[Turns]:
    tap = OtelTap(folder)
    model = make_model(python, folder)
    server = VllmServer(python, model, tap, folder)
    try:
        server.warm_up()
        asked = Server(f"http://127.0.0.1:{server.port}", model, folder, client, tap)
        _say(HEAD)
        found = []
        for length in options.lengths:
            found.append(_turns(asked, length, options.requests))
            _say(str(found[-1]))
        return found
    finally:
        server.stop()
        tap.stop()


def _turns(server: Server, words: int, requests: int) -> Turns:
    first, tokens = _guidellm(server, words, requests, turn=1)
    ours = [_bench(server, tokens, requests) for _ in range(2)]
    last, _ = _guidellm(server, words, requests, turn=2)
    return Turns(tokens, (first, last), ours)


def _guidellm(server: Server, words: int, requests: int, turn: int) -> tuple[Turn, int]:
    """Its turn, and the median of the prompt tokens that the server counted."""
    report = server.folder / f"guidellm-{words}-{turn}.json"
    prompts = _prompts(server.folder / f"prompts-{words}-{turn}.jsonl", words, requests + WARM_UP)
    command = (
        *(server.guidellm, "run", "--disable-console", "--profile", "kind=synchronous"),
        *("--backend", f"kind=openai_http,target={server.url},model={MODEL}"),
        *("--constraint", f"kind=max_requests,count={requests + WARM_UP}"),
        *("--tokenizer", f"kind=huggingface_auto,model={server.model}"),
        *("--data", f"kind=json_file,path={prompts}", "--output", f"kind=json,path={report}"),
    )
    _run(command, clean_environment())
    (benchmark,) = json.loads(report.read_text(encoding="utf-8"))["benchmarks"]
    records = benchmark["requests"]["successful"][WARM_UP:]
    ids = [record["response_id"] for record in records]
    ours = eventually(
        lambda: (found := _ttfts(server.tap)) and found.keys() >= set(ids) and found,
        "not every request of the client has a trace",
    )
    ttfts = [float(record["time_to_first_token_ms"]) for record in records]
    outside = median(ttft - ours[one] for ttft, one in zip(ttfts, ids, strict=True))
    return Turn(median(ttfts), outside), round(median(one["prompt_tokens"] for one in records))


def _prompts(file: Path, words: int, count: int) -> Path:
    """As many prompts as that, none of which begins as another."""
    texts = (" ".join(random.choices(WORDS, k=words)) for _ in range(count))  # noqa: S311 - no secret
    rows = (json.dumps({"prompt": text, "output_tokens_count": TOKENS}) for text in texts)
    file.write_text("\n".join([*rows, ""]), encoding="utf-8")
    return file


def _ttfts(tap: OtelTap) -> dict[str, float]:
    """The server's own TTFT of each request, ms, by the id of its answer."""
    roots = (span.attributes for span in tap.spans() if s.TTFT in span.attributes)
    return {root[s.RESPONSE_ID]: 1e3 * root[s.TTFT] for root in roots}


def _bench(server: Server, tokens: int, requests: int) -> Turn:
    """Ours, of new prefixes."""
    words = (
        *(sys.executable, "-m", "llm_trace.cli", "bench", server.url, "--json"),
        *("--lengths", tokens, "--requests", requests, "--max-tokens", TOKENS),
        *("--body", '{"temperature": 1}'),
    )
    new = json.loads(_run(words, clean_environment()))["cells"][0]
    return Turn(*(1e3 * float(new[name]["median"]) for name in ("ttft", "outside_server")))


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
