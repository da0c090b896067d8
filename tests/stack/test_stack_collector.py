"""The Collector and Tempo: everything is wired, and the traces worth keeping are kept."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress

import pytest
from span_recorder import SpanRecorder
from stack_files import COLLECTOR, PROMETHEUS, SERVICES, TEMPO

import llm_trace
from dashboards import knobs
from llm_trace import semconv as s
from llm_trace.testing import FakeClock, drive, response_body, response_start, sse

MS = 1_000_000
ASKED = b'{"model": "tiny", "stream": true}'
KINDS = ("receivers", "processors", "exporters")
POLICIES = {
    policy["name"]: policy for policy in COLLECTOR["processors"]["tail_sampling"]["policies"]
}
COMPARED = re.compile(r'attributes\["([\w.]+)"\] > ([\d.]+)')
PIPELINES = COLLECTOR["service"]["pipelines"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_defined_is_used_and_the_other_way_round(kind):
    """A pipeline names only what is defined, and nothing lies idle."""
    used = {name for pipeline in PIPELINES.values() for name in pipeline[kind]}

    assert used == COLLECTOR[kind].keys()


def test_extensions_are_defined_and_used():
    """The same for extensions."""
    assert COLLECTOR["extensions"].keys() == set(COLLECTOR["service"]["extensions"])


def test_memory_is_guarded_first_and_batches_are_made_last():
    """A refusal costs nothing before it, and sampling sees spans before they are batched."""
    processors = PIPELINES["traces"]["processors"]

    assert ["memory_limiter", "tail_sampling", "batch"] == processors


def test_span_metrics_are_off():
    """Neither the Collector nor Tempo makes metrics of spans."""
    assert "connectors" not in COLLECTOR
    assert ["traces"] == list(PIPELINES)
    assert "metrics_generator" not in TEMPO


def test_the_collector_sends_to_where_tempo_listens():
    """The exporter's port is one of Tempo's receivers."""
    host, port = COLLECTOR["exporters"]["otlp_grpc/tempo"]["endpoint"].split(":")
    listens = TEMPO["distributor"]["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"]

    assert host in SERVICES
    assert listens == f"0.0.0.0:{port}"


def test_programs_send_to_where_the_collector_listens():
    """The endpoint in the services' environment is one of its receivers."""
    endpoint = SERVICES["app"]["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"]
    listens = COLLECTOR["receivers"]["otlp"]["protocols"]["http"]["endpoint"]

    assert endpoint == f"http://collector:{listens.rpartition(':')[2]}"


@pytest.mark.parametrize("name", ["collector", "tempo"])
def test_the_health_check_asks_where_somebody_answers(name):
    """The probed port is the one that the configuration opens."""
    opened = {
        "collector": COLLECTOR["extensions"]["health_check"]["endpoint"].rpartition(":")[2],
        "tempo": str(TEMPO["server"]["http_listen_port"]),
    }
    asked = SERVICES[name]["healthcheck"]["test"][-1]

    assert f"127.0.0.1:{opened[name]}/" in asked


def test_prometheus_scrapes_the_collector_where_it_tells_of_itself():
    """The port of its own metrics is the scraped one."""
    (reader,) = COLLECTOR["service"]["telemetry"]["metrics"]["readers"]
    port = reader["pull"]["exporter"]["prometheus"]["port"]
    targets = [t for job in PROMETHEUS["scrape_configs"] for t in _targets(job)]

    assert f"collector:{port}" in targets


def _targets(job):
    return (t for config in job.get("static_configs", ()) for t in config["targets"])


# --- tail sampling ----------------------------------------------------------------------------


def test_outcomes_that_are_our_fault_are_kept():
    """`failed` names the outcomes that the availability objective counts as bad."""
    policy = POLICIES["failed"]["string_attribute"]

    assert s.OUTCOME == policy["key"]
    assert set(knobs.BAD_OUTCOMES) == set(policy["values"])


@pytest.mark.parametrize(
    ("name", "key", "values"),
    [("cancelled", s.OUTCOME, s.OUTCOMES), ("cold", s.START_STATE, s.START_STATES)],
)
def test_string_policies_use_our_names_and_values(name, key, values):
    """The attribute is ours, and its value one of the closed set."""
    policy = POLICIES[name]["string_attribute"]

    assert key == policy["key"]
    assert [name] == policy["values"]
    assert name in values


def test_slow_means_what_the_objective_says():
    """The bound for a first token is the objective of boards and alerts."""
    (condition,) = POLICIES["slow-first-token"]["ottl_condition"]["span"]

    assert (s.TTFT, str(knobs.TTFT_SECONDS)) == COMPARED.fullmatch(condition).groups()


def test_a_share_of_the_ordinary_is_kept():
    """Somebody who looks for normal finds it, without everything being stored."""
    assert 0 < POLICIES["baseline"]["probabilistic"]["sampling_percentage"] <= 50


def trace(*, queue=10, load=0, gap=10, ends=None):
    """The spans of a request that spends so many milliseconds, and may end with an exception."""
    clock, sink = FakeClock(), SpanRecorder()

    async def app(_scope, receive, send):
        await receive()
        llm_trace.admitted()
        if load:
            with llm_trace.phase("model_load"):
                clock.advance(load * MS)
        with llm_trace.engine_call("chat", "tiny") as call:
            call.mark("queued")
            clock.advance(queue * MS)
            if ends is not None:
                raise ends
            call.mark("scheduled")
            call.mark("first_token")
            call.usage(input_tokens=9, cached_tokens=0, output_tokens=2)
            await send(response_start("text/event-stream"))
            for text in ("a", "b"):
                await send(sse({"choices": [{"index": 0, "delta": {"content": text}}]}))
                clock.advance(gap * MS)
        await send(sse("[DONE]"))
        await send(response_body())

    observer, tracer = sink.observer(), sink.tracer()
    with suppress(asyncio.CancelledError, RuntimeError):
        asyncio.run(drive(app, observer, body=ASKED, clock=clock, tracer=tracer))
    return sink.spans


def keeps(policy, span):
    """Whether a policy would keep the trace of a span, as its documentation says."""
    kind, attributes = policy["type"], dict(span.attributes)
    if kind == "string_attribute":
        return attributes.get(policy[kind]["key"]) in policy[kind]["values"]
    if kind == "status_code":
        return bool(span.failed)
    if kind == "ottl_condition":
        key, bound = COMPARED.fullmatch(policy[kind]["span"][0]).groups()
        return isinstance(attributes.get(key), float) and attributes[key] > float(bound)
    return False


@pytest.mark.parametrize("queue", [10, 900], ids=["ordinary", "nearly slow"])
def test_an_ordinary_trace_is_left_to_the_baseline(queue):
    """None of its spans meets a policy."""
    spans = trace(queue=queue)

    assert spans
    assert not [name for name, p in POLICIES.items() if any(keeps(p, span) for span in spans)]


@pytest.mark.parametrize(
    ("request_", "kept_by"),
    [
        ({"queue": 1100}, {"slow-first-token"}),
        ({"gap": 1100}, {"stalled"}),
        ({"load": 100}, {"cold"}),
        ({"ends": asyncio.CancelledError()}, {"cancelled"}),
        ({"ends": RuntimeError("died")}, {"failed", "failed-elsewhere"}),
    ],
    ids=["slow", "stalled", "cold", "cancelled", "failed"],
)
def test_a_telling_trace_is_kept_for_its_root(request_, kept_by):
    """The root that llm_trace really makes meets the policies meant for it, and no other."""
    *_, root = trace(**request_)

    assert kept_by == {name for name, policy in POLICIES.items() if keeps(policy, root)}
