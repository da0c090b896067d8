"""Twenty concurrent streams, asked by a program of its own: `python crowd.py PORT`.

The client's clock is what is compared, so its process does nothing else: no coverage, no receiver,
no pytest. Prints one JSON document: each answer's ids and time to first token in ns, and how
long the kernel kept the client waiting for a processor, in ms.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace

from stamped_client import Connection
from vllm_server import CHAT, chat

STREAMS = 20
TOKENS = 400
APART = 0.04
"""Seconds between the beginnings of streams: all are in flight before the first one ends."""


def ask_crowd(port):
    """The answers and the waiting of a crowd, from a process of its own."""
    command = [sys.executable, __file__, str(port)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=180)
    document = json.loads(ran.stdout)
    answers = [SimpleNamespace(**answer) for answer in document["answers"]]
    return SimpleNamespace(answers=answers, waited=document["waited"])


def _waited_for_a_cpu():
    """Milliseconds that this thread was ready to run and did not, by the kernel's account."""
    return int(Path("/proc/self/schedstat").read_text(encoding="ascii").split()[1]) / 1e6


async def _crowd(port):
    async def stream(number, connection):
        await asyncio.sleep(number * APART)  # the load's schedule: nothing is waited for
        words = f"stream {number} " + "and so on " * (10 * number % 70)
        return await connection.ask(CHAT, chat(words, TOKENS))

    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(Connection(port)) for _ in range(STREAMS)]
        for connection in opened:
            await connection.ask("/health")
        return await asyncio.gather(*(stream(*pair) for pair in enumerate(opened)))


def main(port):
    """Ask, and print what came."""
    before = _waited_for_a_cpu()
    answers = asyncio.run(_crowd(port))
    waited = _waited_for_a_cpu() - before
    told = [
        {"trace_id": a.trace_id, "ttft": a.ttft, "response_id": a.events[0]["id"]} for a in answers
    ]
    sys.stdout.write(json.dumps({"waited": waited, "answers": told}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
