"""What a full vLLM serves, bare and under llm_trace: `python -m tests.benchmarks.saturated`.

Two real servers with one model, each kept full in turn by more clients than it has slots. Nobody
asks the one that does not have its turn, and turns come in pairs of changing order, so that a
machine that grows slower favours neither. The traced one exports every span, to a receiver that
drops it. Status 1 where it serves less than 99 % of the other's requests a second, and the spread
of the pairs does not explain that. Beside it, the CPU time of the API server's process, which does
not depend on who else uses the machine as much.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import fmean, stdev
from types import MappingProxyType
from typing import Final, NamedTuple

from llm_trace.core.clock import SYSTEM

sys.path.insert(0, str(Path(__file__).parents[1] / "end_to_end"))

from stamped_client import Connection
from vllm_server import COMPLETIONS, SLOTS, VllmServer, completion, make_model

ROOT: Final = Path(__file__).parents[2]
MUST: Final = 0.99
CLIENTS: Final = 3 * SLOTS
PROMPT: Final = 120
TOKENS: Final = 64
SIZES: Final = ("--hidden", "256", "--layers", "4", "--max-len", "16384")
"""The model of the demo: larger than that of the tests, for which an engine hardly works."""


class Bare(VllmServer):
    """vLLM as it is."""

    def _layers(self, _inner: str) -> tuple[object, ...]:
        return ()


class Traced(VllmServer):
    """vLLM with the one flag, which exports as often as it does of itself."""

    haste = MappingProxyType({})

    def _layers(self, _inner: str) -> tuple[object, ...]:
        return ("--middleware", "llm_trace.TraceMiddleware")


class _Drop(BaseHTTPRequestHandler):
    """Says that it took what it did not read."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


class Receiver(ThreadingHTTPServer):
    """A collector that drops everything."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Drop)
        self.endpoint = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 where the must is missed, 2 where it cannot be measured."""
    parser = argparse.ArgumentParser("python -m tests.benchmarks.saturated", description=__doc__)
    parser.add_argument("--pairs", type=int, default=6, help="of turns (default: 6, at least 2)")
    parser.add_argument("--requests", type=int, default=120, help="a turn (default: 120)")
    options = parser.parse_args(arguments)
    python = Path(os.environ.get("LLM_TRACE_VLLM_PYTHON") or ROOT / ".venv-vllm" / "bin" / "python")
    if not python.is_file():
        _say("saturated: there is no environment with vLLM: build it with `make vllm`")
        return 2
    with ExitStack() as stack:
        bare, traced = _started(stack, Path(os.path.abspath(python)))  # noqa: PTH100 - resolving would leave the venv
        _say("requests/s    bare  traced   ratio   API process, ms/request    bare  traced")
        pairs = []
        for number in range(max(2, options.pairs)):
            pairs.append(_pair(bare, traced, options.requests, turned=number % 2 == 1))
            _say(str(pairs[-1]))
    kept, error = ratio(pairs)
    _say(f"traced / bare: {kept:.4f}, standard error {error:.4f}; must {MUST}")
    return int(misses(kept, error))


class Turn(NamedTuple):
    """What one server did while it was full."""

    rate: float
    """Requests a second."""
    cpu: float
    """Milliseconds of its API process for one request."""


class Pair(NamedTuple):
    """A turn of each server, one right after the other."""

    bare: Turn
    traced: Turn

    def __str__(self) -> str:
        bare, traced = self
        rates = f"{bare.rate:18.2f} {traced.rate:7.2f} {traced.rate / bare.rate:7.4f}"
        return f"{rates} {bare.cpu:33.2f} {traced.cpu:7.2f}"


def ratio(pairs: Sequence[Pair]) -> tuple[float, float]:
    """The traced server's requests a second over the bare one's, and the error of their mean."""
    ratios = [pair.traced.rate / pair.bare.rate for pair in pairs]
    return fmean(ratios), stdev(ratios) / len(ratios) ** 0.5


def misses(kept: float, error: float) -> bool:
    """Whether so much less is served that chance does not explain it."""
    return kept + 2 * error < MUST


def _say(what: str) -> None:
    sys.stdout.write(what + "\n")
    sys.stdout.flush()


def _started(stack: ExitStack, python: Path) -> tuple[VllmServer, VllmServer]:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    receiver = Receiver()
    stack.callback(receiver.shutdown)
    model = make_model(python, folder, SIZES)
    servers = []
    for kind, more in ((Bare, {"VLLM_PLUGINS": "none"}), (Traced, {})):
        own = folder / kind.__name__
        own.mkdir()
        server = kind(python, model, receiver, own, **more)
        stack.callback(server.stop)
        server.warm_up()
        _turn(server, CLIENTS)  # the first is slow
        servers.append(server)
    return servers[0], servers[1]


def _pair(bare: VllmServer, traced: VllmServer, requests: int, *, turned: bool) -> Pair:
    servers = (traced, bare) if turned else (bare, traced)
    turns = {server: _turn(server, requests) for server in servers}
    return Pair(turns[bare], turns[traced])


def _turn(server: VllmServer, requests: int) -> Turn:
    """Keep the server full with so many requests."""
    left = iter(range(requests))

    async def client() -> None:
        async with Connection(server.port) as connection:
            for _ in left:
                prompt = random.choices(range(300, 2000), k=PROMPT)  # noqa: S311 - no secret
                answer = await connection.ask(COMPLETIONS, completion(prompt, TOKENS, stream=True))
                assert answer.status == 200, answer.raw

    async def all_of_them() -> None:
        await asyncio.gather(*(client() for _ in range(CLIENTS)))

    start, spent = SYSTEM.monotonic_ns(), _cpu_ms(server)
    asyncio.run(all_of_them())
    seconds = (SYSTEM.monotonic_ns() - start) / 1e9
    return Turn(requests / seconds, (_cpu_ms(server) - spent) / requests)


def _cpu_ms(server: VllmServer) -> float:
    """CPU time of the API server's process so far, without the engine's; Linux only."""
    stat = Path(f"/proc/{server.program.process.pid}/stat").read_text(encoding="ascii")
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) * 1e3 / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
