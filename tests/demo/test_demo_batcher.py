"""The simulated scheduler: order, slots and the prefix cache."""

import asyncio
from contextlib import aclosing

from llm_trace.demo.batcher import BLOCK, Batcher, Pace, Work

INSTANT = Pace(0.0, 0.0)


async def finish(batcher, work):
    """Run work to its end and return its events."""
    async with aclosing(batcher.run(work)) as events:
        return [event async for event in events]


def test_a_request_is_scheduled_once_and_then_gets_its_tokens():
    """The events come in order, and as many tokens as asked for."""
    events = asyncio.run(finish(Batcher(pace=INSTANT), Work(range(10), 3)))

    assert events == ["scheduled", "token", "token", "token"]


def test_slots_are_given_in_order_of_arrival():
    """With one slot, the second request waits for the end of the first."""

    async def two():
        batcher, order = Batcher(slots=1, pace=INSTANT), []

        async def one(name):
            async with aclosing(batcher.run(Work(range(4), 2))) as events:
                order.extend([(name, event) async for event in events])

        await asyncio.gather(one("first"), one("second"))
        return [name for name, _ in order]

    assert asyncio.run(two()) == ["first"] * 3 + ["second"] * 3


def test_a_repeated_prefix_is_found_in_the_cache():
    """Whole blocks of an equal prefix are cached; the last token is always computed."""
    batcher = Batcher(pace=INSTANT)
    prompt = list(range(4 * BLOCK))
    works = [Work(prompt, 1), Work(prompt, 1), Work([*prompt, 7, 8], 1), Work([9, *prompt], 1)]

    for work in works:
        asyncio.run(finish(batcher, work))

    assert [work.cached_tokens for work in works] == [0, 3 * BLOCK, 4 * BLOCK, 0]


def test_the_cache_is_bounded():
    """The oldest blocks go first."""
    batcher = Batcher(pace=INSTANT, cache_blocks=2)
    asyncio.run(finish(batcher, Work(range(10 * BLOCK), 1)))

    assert len(batcher._cache) == 2


def test_leaving_early_frees_the_slot():
    """A client that goes away does not keep its slot."""

    async def leave_then_run():
        batcher = Batcher(slots=1, pace=INSTANT)
        async with aclosing(batcher.run(Work(range(4), 100))) as events:
            assert await anext(events) == "scheduled"
        return await asyncio.wait_for(finish(batcher, Work(range(4), 1)), 5)

    assert asyncio.run(leave_then_run()) == ["scheduled", "token"]
