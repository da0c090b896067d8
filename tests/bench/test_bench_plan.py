"""What is sent, and that it is bounded before anything is."""

import pytest

from llm_trace.bench.errors import BenchError
from llm_trace.bench.plan import Cell, Plan


def plan(**given):
    """A small plan."""
    defaults = {"lengths": (10, 20), "concurrencies": (1, 4), "requests": 3, "max_tokens": 2}
    bounds = {"max_requests": 1000, "max_seconds": 60.0, "timeout": 5.0}
    return Plan(**{**defaults, **bounds, **given})


def test_a_cached_cell_follows_the_new_one_of_its_length():
    """At the fewest requests in flight first."""
    assert plan(lengths=(10,)).cells == (
        Cell(1, 10, "new"),
        Cell(1, 10, "cached"),
        Cell(4, 10, "new"),
        Cell(4, 10, "cached"),
    )


def test_every_request_is_in_the_total():
    """The first one, a warm-up for each length, those that fill the cache, and the measured ones.

    Four requests at once are four requests at least.
    """
    assert plan().total == 1 + 2 + (2 * 1 + 2 * 4) + 2 * 2 * (3 + 4)


def test_a_plan_that_is_too_large_never_starts():
    """The message says how large it is."""
    with pytest.raises(BenchError, match="needs 41 requests and --max-requests allows 40"):
        plan(max_requests=40)
