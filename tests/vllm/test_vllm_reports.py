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

    assert reports.before(299) == Batch(4, 3, 0.5, deferred=2)
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


def reported(*steps):
    """Reports of steps: end, running, waiting, deferred, share of the cache in use."""
    reports = Reports()
    for at, running, waiting, deferred, usage in steps:
        stats = SimpleNamespace(
            num_running_reqs=running,
            num_waiting_reqs=waiting,
            num_skipped_waiting_reqs=deferred,
            kv_cache_usage=usage,
        )
        reports.add(stats, at)
    return reports


def test_it_found_what_the_step_before_left_and_waited_for_what_was_full():
    """Two ended at once, so the step before left room; until then all four slots were taken."""
    reports = reported(
        (5, 9, 0, 9, 0.99), (10, 4, 2, 0, 0.4), (20, 4, 2, 1, 0.5), (30, 2, 2, 0, 0.2)
    )

    expected = Batch(2, 2, 0.2, deferred=1, most_running=4, most_kv_usage=0.5)
    assert expected == reports.before(30, queued=8)


def test_a_wait_of_unknown_length_says_only_what_it_found():
    """Nothing is known of the time before."""
    assert Batch(2, 2, 0.2) == reported((10, 4, 0, 0, 0.9), (30, 2, 2, 0, 0.2)).before(35)
