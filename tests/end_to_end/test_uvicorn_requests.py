"""Real uvicorn processes: what is recorded of requests, over both OTLP transports."""

from __future__ import annotations

import pytest
from grpc_receiver import GrpcReceiver
from opentelemetry.exporter.prometheus._mapping import map_unit, sanitize_full_name
from programs import eventually
from scrape import scrape
from stamped_client import ask, leave
from tap import SERVER
from uvicorn_server import CHAT, exports_to, serving

from llm_trace import semconv as s


@pytest.fixture(params=["http/protobuf", "grpc"])
def receiver(request):
    """A receiver that is not ours, for each transport."""
    if request.param == "http/protobuf":
        yield request.getfixturevalue("tap"), request.param
        return
    with GrpcReceiver() as grpc:
        yield grpc, request.param


def test_one_trace_a_request(receiver, programs, tmp_path):
    """Root, phases, retrieval and the engine's call arrive as one tree over either transport."""
    taken, protocol = receiver
    server = serving(programs, tmp_path, **exports_to(taken.endpoint, protocol))
    answer = ask(server.port, CHAT, {"tokens": 5, "stream": True})
    root = taken.root(answer.trace_id)
    trace = taken.trace(answer.trace_id)
    below = [span for span in trace if span.span_id != root.span_id]

    assert (root.kind, root.failed, root.attributes[s.OUTCOME]) == (SERVER, False, "ok")
    names = {"admission", "retrieval shelf", "chat staged", "first_token", "decode"}
    assert names <= {span.name for span in below}
    assert {span.parent_id for span in below} <= {span.span_id for span in trace}
    assert all(root.start <= span.start <= span.end <= root.end for span in below)
    phases = [x for k, x in root.attributes.items() if k.startswith(s.TTFT_PHASE_PREFIX)]
    assert sum(round(x * 1e9) for x in phases) == round(root.attributes[s.TTFT] * 1e9)


def test_both_transports_carry_the_names_of_the_page(receiver, programs, tmp_path):
    """The official translation of every OTLP metric is the family that /metrics shows."""
    taken, protocol = receiver
    server = serving(programs, tmp_path, **exports_to(taken.endpoint, protocol))
    ask(server.port, CHAT, {"tokens": 5, "stream": True})
    eventually(lambda: s.REQUESTS.name in taken.metrics(), "no metrics came", log=server)
    page = scrape(server.port)

    translated = {_prometheus_name(metric) for metric in taken.metrics().values()}
    shown = {
        f"{name}_total" if family.type == "counter" else name
        for name, family in page.families.items()
        if name.startswith(("llm_trace", "gen_ai")) and family.samples
    }
    assert translated == shown


def _prometheus_name(metric):
    name = sanitize_full_name(metric["name"])
    unit = map_unit(metric.get("unit", ""))
    if unit and not name.endswith(f"_{unit}"):
        name = f"{name}_{unit}"
    return f"{name}_total" if metric.get("sum", {}).get("isMonotonic") else name


def test_values_are_the_same_over_otlp_and_on_the_page(tap, programs, tmp_path):
    """One set of accumulators feeds both: same counts and sums."""
    server = serving(programs, tmp_path, **exports_to(tap.endpoint))
    for _ in range(3):
        ask(server.port, CHAT, {"tokens": 5, "stream": True})
    name = s.TIME_TO_FIRST_TOKEN
    point = eventually(
        lambda: next(
            (p for p in _points(tap, name.name, "histogram") if int(p["count"]) == 3), None
        ),
        "three samples did not come",
        log=server,
    )
    page = scrape(server.port)

    assert page.total(f"{name.prometheus}_count") == 3
    assert page.total(f"{name.prometheus}_sum") == point["sum"]
    assert sum(map(int, point["bucketCounts"])) == 3
    assert tuple(point["explicitBounds"]) == name.buckets


def _points(tap, name, kind):
    return tap.metrics().get(name, {}).get(kind, {}).get("dataPoints", [])


def test_client_leaves_mid_stream(tap, programs, tmp_path):
    """Cancelled in decode, counted once, and nobody is left in flight."""
    server = serving(programs, tmp_path, **exports_to(tap.endpoint))
    body = {"tokens": 100_000, "pause": 0.001, "stream": True}
    answer = leave(server.port, CHAT, body, after_tokens=3)
    root = tap.root(answer.trace_id)

    assert (root.attributes[s.OUTCOME], root.attributes[s.LAST_PHASE]) == ("cancelled", "decode")
    assert (root.failed, s.ERROR_TYPE in root.attributes) == (False, False)
    page = scrape(server.port)
    assert page.by("llm_trace_outcome", s.REQUESTS.prometheus) == {"cancelled": 1}
    assert page.total(s.REQUESTS_ACTIVE.prometheus) == 0


def test_endpoint_dies_mid_stream(tap, programs, tmp_path):
    """Status 200 was sent, and yet it is an error, with the type of what the app raised."""
    server = serving(programs, tmp_path, **exports_to(tap.endpoint))
    with pytest.raises(EOFError, match="hung up"):
        ask(server.port, CHAT, {"tokens": 5, "dies_after": 2, "stream": True})
    root = eventually(
        lambda: next((x for x in tap.spans() if x.is_root), None), "no root", log=server
    )

    assert (root.attributes[s.OUTCOME], root.failed) == ("error", True)
    assert root.attributes[s.ERROR_TYPE] == "ConnectionAbortedError"
    assert root.attributes[s.HTTP_STATUS] == 200
    assert root.attributes[s.TTFT] > 0
    assert server.text().count("ConnectionAbortedError: the engine is gone") == 1
    page = scrape(server.port)
    duration = f"{s.REQUEST_DURATION.prometheus}_count"
    assert page.by("error_type", duration) == {"ConnectionAbortedError": 1}


def test_background_work_is_not_the_requests_time(tap, programs, tmp_path):
    """The span is exported, ended, while the task that the response left behind still runs."""
    server = serving(programs, tmp_path, **exports_to(tap.endpoint))
    answer = ask(server.port, CHAT, {"tokens": 2, "background": 0.5, "stream": True})
    root = tap.root(answer.trace_id)
    ended = eventually(
        lambda: ask(server.port, "/background").document["ended"], "the task never ended"
    )

    assert root.end <= ended - 400_000_000
    assert root.attributes[s.OUTCOME] == "ok"
