"""What the demo asks: classes of request that spend their time in different places."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from llm_trace.demo.client import Answer, ask
from llm_trace.demo.index import subjects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

COLD: Final = "cold"
ALONE: Final = "alone"
UNIQUE: Final = "unique"
SHARED: Final = "shared"
SHORT: Final = "short"
KINDS: Final = {
    COLD: "the first request after the start",
    ALONE: "new long prompts, one at a time: nobody to queue behind",
    UNIQUE: "new long prompts, under load",
    SHARED: "the cold request's passages and question with a new follow-up, under load",
    SHORT: "one passage, under load",
}
_LONG: Final = 6
_RAMP: Final = 0.03
"""Seconds between the first requests of a crowd: people do not all press the key at once."""
_FIRST_QUESTION: Final = "How do generators and coroutines relate?"


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to ask; `each` counts the requests of every class but the cold one."""

    each: int = 12
    concurrency: int = 12
    max_tokens: int = 32
    seed: int = 7


@dataclass(frozen=True, slots=True)
class Target:
    """Where to ask."""

    port: int
    api_key: str


@dataclass(frozen=True, slots=True)
class Job:
    """One request to make."""

    kind: str
    body: dict[str, Any]


def acts(plan: Plan) -> list[tuple[list[Job], int]]:
    """Return jobs and how many at once: the cold one, then calm, then crowded."""
    ask_long = (_job(plan, UNIQUE, [question], _LONG) for question in _questions())
    alone = [Job(ALONE, next(ask_long).body) for _ in range(plan.each)]
    crowd = [next(ask_long) for _ in range(plan.each)]
    crowd += [_job(plan, SHARED, _follow_up(turn), _LONG) for turn in range(plan.each)]
    crowd += [_job(plan, SHORT, [_short(turn)], 1) for turn in range(plan.each)]
    random.Random(plan.seed).shuffle(crowd)  # noqa: S311 - the same order every time
    cold = _job(plan, COLD, [_FIRST_QUESTION], _LONG)
    return [([cold], 1), (alone, 1), (crowd, plan.concurrency)]


def total(plan: Plan) -> int:
    """Count the requests of a plan."""
    return sum(len(jobs) for jobs, _ in acts(plan))


async def run(plan: Plan, target: Target, seen: Callable[[Answer], None]) -> list[Answer]:
    """Play the acts one after another, telling of each answer as it ends."""
    answers: list[Answer] = []
    for jobs, concurrency in acts(plan):
        answers += await _act(jobs, concurrency, target, seen)
    return answers


async def _act(
    jobs: Sequence[Job], concurrency: int, target: Target, seen: Callable[[Answer], None]
) -> list[Answer]:
    waiting = iter(jobs)
    answers: list[Answer] = []

    async def worker(place: int) -> None:
        await asyncio.sleep(place * _RAMP)
        for job in waiting:
            answer = await ask(target.port, target.api_key, job.kind, job.body)
            answers.append(answer)
            seen(answer)

    await asyncio.gather(*(worker(place) for place in range(concurrency)))
    return answers


def _job(plan: Plan, kind: str, turns: Sequence[str], documents: int) -> Job:
    """Build a chat whose turns alternate, the user first."""
    messages = [
        {"role": "assistant" if turn % 2 else "user", "content": text}
        for turn, text in enumerate(turns)
    ]
    return Job(
        kind,
        {
            "messages": messages,
            "stream": True,
            "max_tokens": plan.max_tokens,
            "documents": documents,
        },
    )


def _questions() -> Iterator[str]:
    """Never ask the same twice: each pair of subjects finds passages of its own."""
    names = subjects()
    for distance in range(1, len(names)):
        for place, name in enumerate(names):
            other = names[(place + distance) % len(names)]
            yield f"{name}: how does it work, and what has {other} to do with it?"


def _follow_up(turn: int) -> list[str]:
    return [_FIRST_QUESTION, "They share a mechanism.", f"Give example number {turn + 1}."]


def _short(turn: int) -> str:
    names = subjects()
    return f"What is {names[turn * 5 % len(names)]}?"
