"""Requests of every shape at once: `ask_mixed(port, number)`.

Long prompts in chunks, long answers that are preempted where blocks are few, several choices and
several prompts, one token, answers in one piece, shared beginnings, and clients that leave: in the
queue, before a token, and after some; and answers that a speculating engine may guess.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from types import SimpleNamespace

from stamped_client import Connection
from vllm_server import CHAT, COMPLETIONS, chat, completion

PREFIX = "the same beginning for all who ask " * 20


def _short(n):
    return CHAT, chat(f"a short one, number {n}", 40)


def _long_prompt(n):
    return CHAT, chat(f"number {n} " + "goes on and on " * 500, 20)


def _left_short(n):
    """Long enough to be left, however slowly its client sees that it began."""
    return CHAT, chat(f"a short one, number {n}", 400)


def _left_prompt(n):
    return CHAT, chat(f"number {n} " + "goes on and on " * 500, 400)


def _long_answer(n):
    return COMPLETIONS, completion(f"{n} tell me " + "all of it " * 120, 240, stream=True)


def _greedy(n):
    """A random model soon repeats itself then, so that a draft may be right."""
    return COMPLETIONS, completion(f"{n} over and over", 60, stream=True, temperature=0)


def _shape(place):
    return (_long_answer, None) if place < FIRST else SHAPES[place % len(SHAPES)]


def _plain(n):
    return COMPLETIONS, completion(f"number {n} all at once", 30)


def _two_choices(n):
    return CHAT, chat(f"two answers to {n}", 24, n=2)


def _two_prompts(n):
    return COMPLETIONS, completion([f"the first of {n}", f"the second of {n}"], 16, stream=True)


def _one_token(n):
    return CHAT, chat(f"yes or no, number {n}", 1)


def _shared(n):
    return CHAT, chat(f"{PREFIX} and {n}", 24)


SHAPES = (
    (_short, None),
    (_long_answer, None),
    (_long_prompt, None),
    (_plain, None),
    (_long_answer, None),
    (_two_choices, None),
    (_shared, None),
    (_long_answer, 5),
    (_two_prompts, None),
    (_one_token, None),
    (_greedy, None),
    (_left_prompt, 0),
    (_shared, None),
    (_left_short, 0),
)
"""What is asked, and after how many tokens its client leaves; None stays to the end."""
FIRST = 8
"""How many long answers come first: together they need more blocks than a small cache has."""


def ask_mixed(port, number, apart=0.01):
    """Ask so many in turn of the shapes, `apart` seconds apart; what each asked and got."""
    return asyncio.run(_ask_all(port, number, apart))


async def _ask_all(port, number, apart):
    async def one(place, connection):
        await asyncio.sleep(place * apart)  # the load's schedule: nothing is waited for
        make, leaves_after = _shape(place)
        path, body = make(place)
        answer = await _ask(connection, path, body, leaves_after)
        return SimpleNamespace(answer=answer, leaves_after=leaves_after, shape=make.__name__)

    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(Connection(port)) for _ in range(number)]
        return await asyncio.gather(*(one(*pair) for pair in enumerate(opened)))


async def _ask(connection, path, body, leaves_after):
    if leaves_after is None:
        return await connection.ask(path, body)
    answer = await connection.begin(path, body)
    while not answer.status or len(answer.token_stamps()) < leaves_after:
        await connection.read_some(answer)
    connection.abort()
    return answer
