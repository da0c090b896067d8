"""Causes of slowness, each planted in real vLLM: does the verdict name it?

As a program, `python tests/end_to_end/planted.py` starts a server for each set of flags, one after
the other, plants each cause in twenty requests, and prints what was said of them. It needs the
vLLM environment; a server starts in about half a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import NamedTuple

from planter import BLOCK, LARGE, LOAD, RETRIEVAL
from stamped_client import Answer, Connection
from tap import OtelTap
from vllm_server import CHAT, COMPLETIONS, VllmServer, chat, completion, make_model

from llm_trace import semconv as s

REQUESTS = 20
NAMED = 19
"""Of twenty, how many must be named rightly."""

COSTLY = 0.25
"""Seconds that a preemption must have cost for it to be a cause: some are put back at once."""

_fresh = count(1)


def long_prompt():
    """About three thousand tokens that nobody asked before."""
    number = next(_fresh)
    return f"{number} " + f"matter {number} goes on and on in many words " * 300


class Roots(NamedTuple):
    """The roots of requests, as the receiver understood them."""

    roots: list

    def verdicts(self):
        """How often each verdict was given."""
        return Counter(root.attributes.get(s.VERDICT, "none") for root in self.roots)

    def other_than(self, *expected):
        """Those with another verdict: it, its reason, and its phases."""
        return [
            (root.attributes.get(s.VERDICT), root.attributes.get(s.VERDICT_REASON))
            for root in self.roots
            if root.attributes.get(s.VERDICT) not in expected
        ]


def roots_of(server, answers):
    """What the server's spans say of `answers`."""
    return Roots([server.tap.root(answer.trace_id) for answer in answers])


def together(server, asked, *, apart=0.0):
    """Ask all at once, each on a connection of its own that was used before."""

    async def one(number, connection, question):
        await asyncio.sleep(number * apart)  # the load's schedule: nothing is waited for
        path, body, headers = question
        return await connection.ask(path, body, headers=headers)

    async def all_of_them():
        async with AsyncExitStack() as stack:
            opened = [await stack.enter_async_context(Connection(server.port)) for _ in asked]
            for connection in opened:
                await connection.ask("/health")
            pairs = enumerate(zip(opened, asked, strict=True))
            return await asyncio.gather(*(one(n, c, q) for n, (c, q) in pairs))

    return asyncio.run(all_of_them())


def in_turn(server, asked):
    """Ask one after the other."""
    return [answer for question in asked for answer in together(server, [question])]


# --- the causes ---------------------------------------------------------------------------------


def slots(server, number):
    """More streams than slots: all but the first wait for one."""
    asked = [(CHAT, chat(f"a stream, number {n}", 120), {}) for n in range(number + 8)]
    return together(server, asked, apart=0.01)[-number:]


def long_prompts(server, number):
    """New prompts of three thousand tokens, one at a time."""
    return in_turn(server, [(CHAT, chat(long_prompt(), 4), {}) for _ in range(number)])


def slow_retrieval(server, number):
    """A store that takes half a second."""
    asked = [(CHAT, chat(f"look it up, {n}", 8), RETRIEVAL) for n in range(number)]
    return in_turn(server, asked)


def blocked_loop(server, number):
    """While the engine computes a prompt, another request's handler blocks the event loop."""

    async def one(victim, other, n):
        answer = await victim.begin(CHAT, chat(f"an innocent one, {n}", 4))
        await asyncio.sleep(0.002)  # the other one comes after the hand-off
        blocker = asyncio.create_task(other.ask("/health", headers=BLOCK))
        while not answer.complete():
            await victim.read_some(answer)
        await blocker
        return answer

    async def all_of_them():
        async with Connection(server.port) as victim, Connection(server.port) as other:
            return [await one(victim, other, n) for n in range(number)]

    return asyncio.run(all_of_them())


def slow_reader(server, number, *, side_by_side=2):
    """A client that reads nothing of a large answer for a while: all buffers on the way fill up."""

    async def one():
        async with Connection(server.port) as connection:
            body = chat("tell me everything", 400)
            answer = await connection.begin(CHAT, body, headers=LARGE)
            while not answer.token_stamps():
                await connection.read_some(answer)
            await asyncio.sleep(2.0)  # the cause: it has better things to do
            while not answer.complete():
                await connection.read_some(answer)
            return answer

    async def all_of_them():
        answers = []
        while len(answers) < number:
            answers += await asyncio.gather(*(one() for _ in range(side_by_side)))
        return answers

    return asyncio.run(all_of_them())


def cold(server, number):
    """An app that has to load something before the engine can be asked."""
    asked = [(CHAT, chat(f"wake up, {n}", 8), LOAD) for n in range(number)]
    return in_turn(server, asked)


def repeated_prompt(server, number):
    """One long prompt again and again, where no prefix is kept."""
    words = long_prompt()
    return in_turn(server, [(CHAT, chat(words, 4), {}) for _ in range(number)])


def few_blocks(server, number):
    """Long answers that together need more blocks than there are; those whom preemption cost."""
    preempted: list[Answer] = []
    while len(preempted) < number:
        words = "tell me all of it " * 100
        asked = [
            (COMPLETIONS, completion(f"{next(_fresh)} {words}", 400, stream=True), {})
            for _ in range(8)
        ]
        answers = together(server, asked)
        preempted += [
            answer
            for answer, root in zip(answers, roots_of(server, answers).roots, strict=True)
            if root.attributes.get(s.QUEUE_REQUEUED, 0) > COSTLY
        ]
    return preempted[:number]


def mixed(server, number):
    """A healthy load: short and long, cached and new, streamed and plain, never over the slots."""

    def question(n):
        kinds = (
            (CHAT, chat(f"a short one, {n}", 40), {}),
            (CHAT, chat(long_prompt(), 12), {}),
            (COMPLETIONS, completion(f"all at once, {n}", 24), {}),
            (CHAT, chat("the same beginning for all " * 40 + str(n), 24), {}),
            (CHAT, chat(f"yes or no, {n}", 1), {}),
        )
        return kinds[n % len(kinds)]

    asked = [question(n) for n in range(number)]
    return [a for n in range(0, number, 3) for a in together(server, asked[n : n + 3])]


class Cause(NamedTuple):
    """A cause, how it is planted, and what must be said of it."""

    plant: Callable
    verdicts: tuple[str, ...]


HEALTHY = (
    *("prefill", "decode", "delivery", "prepare", "admission", "decode_stalled"),
    *("queue_deferred", "queue_before_engine", "event_loop"),
)
"""What may be said of a load in which nothing was planted: where its time goes. A short prompt does
wait for the steps of a long one, and a busy machine does block a loop."""

USUAL = (
    Cause(slots, ("queue_slots",)),
    Cause(long_prompts, ("prefill",)),
    Cause(cold, ("cold_start",)),
    Cause(slow_retrieval, ("retrieval",)),
    Cause(blocked_loop, ("event_loop",)),
    Cause(slow_reader, ("back_pressure",)),
)
"""In a usual server of four slots."""

SERVERS = {
    "four slots": ((), USUAL),
    "one slot, no prefix cache": (
        ("--max-num-seqs", "1", "--no-enable-prefix-caching"),
        (
            Cause(slots, ("queue_slots",)),
            Cause(repeated_prompt, ("cache_lost",)),
        ),
    ),
    "few blocks": (
        (
            *("--max-num-seqs", "8", "--max-model-len", "4096"),
            *("--num-gpu-blocks-override", "160"),
        ),
        (Cause(few_blocks, ("preempted",)),),
    ),
}
"""By the flags that it takes to plant them."""


def main():
    """Plant every cause; 1 where one was not named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="*", help="names of causes; default: all of them")
    parser.add_argument("--requests", type=int, default=REQUESTS)
    args = parser.parse_args()
    python = Path(os.environ["LLM_TRACE_VLLM_PYTHON"])
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(python, Path(folder))
        for name, (flags, causes) in SERVERS.items():
            chosen = [c for c in causes if not args.only or c.plant.__name__ in args.only]
            if chosen:
                missed += _serve(python, model, Path(folder), name, flags, chosen, args.requests)
    return 1 if missed else 0


def _serve(python, model, folder, name, flags, causes, number):
    tap = OtelTap(folder)
    server = VllmServer(python, model, tap, folder, flags)
    try:
        server.warm_up()
        return sum(_plant(server, name, cause, number) for cause in causes)
    finally:
        server.stop()
        tap.stop()


def _plant(server, name, cause, number):
    found = roots_of(server, cause.plant(server, number))
    wrong = found.other_than(*cause.verdicts)
    total = len(found.roots)
    sys.stdout.write(
        f"{name}: {cause.plant.__name__}: {total - len(wrong)} of {total} "
        f"{'/'.join(cause.verdicts)}; {dict(found.verdicts())}\n"
    )
    for verdict, reason in wrong[:5]:
        sys.stdout.write(f"    {verdict}: {reason}\n")
    sys.stdout.flush()
    return len(wrong) > total * (1 - NAMED / REQUESTS)


if __name__ == "__main__":
    sys.exit(main())
