"""The batch into which a request was first scheduled."""

from types import SimpleNamespace

from llm_trace.core.engine_call import Batch
from llm_trace_vllm.reports import Reports


def stats(running, waiting, usage=0.5, **more):
    """A scheduler's statistics."""
    return SimpleNamespace(
        num_running_reqs=running, num_waiting_reqs=waiting, kv_cache_usage=usage, **more
    )


def test_a_schedule_finds_what_the_step_before_left():
    """Not what the engine said later, when the request was in it."""
    reports = Reports()
    reports.add(stats(3, 2), 100)
    reports.add(stats(4, 1, num_skipped_waiting_reqs=2), 200)
    reports.add(stats(5, 0), 300)

    assert reports.before(299) == Batch(4, 3, 0.5)
    assert reports.before(300) == Batch(5, 0, 0.5)


def test_before_the_first_report_nothing_is_known():
    """The engine's first request, or one from long ago."""
    reports = Reports()
    reports.add(stats(3, 2), 100)

    assert reports.before(99) is None
    assert Reports().before(99) is None


def test_a_version_without_usage():
    """What is not said is not there."""
    reports = Reports()
    reports.add(SimpleNamespace(num_running_reqs=1, num_waiting_reqs=0), 100)

    assert reports.before(100) == Batch(1, 0, None)
