"""What one request leaves in the metrics, and that no client can grow them."""

# ruff: noqa: E501 - the lines of a scrape are as long as they are

import asyncio
import random
import re
from functools import partial

import pytest
from inline_snapshot import snapshot
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest as classic
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
from span_recorder import MS, TRACE, SpanRecorder

import llm_trace
from llm_trace import semconv as s
from llm_trace.core import engines, faults
from llm_trace.observers import recorder as module
from llm_trace.observers.metrics import instruments
from llm_trace.observers.recorder import MetricsObserver
from llm_trace.testing import (
    RECEIVE,
    FakeClock,
    Server,
    http_scope,
    response_body,
    response_start,
    scripted,
    sse,
    watched,
)

STREAM = response_start("text/event-stream")
DONE = sse("[DONE]")
END = response_body()


@pytest.fixture(autouse=True)
def counted(monkeypatch):
    """Nothing learned, dropped or failed yet."""
    for name in ("internal", "dropped", "spans"):
        getattr(faults, name).clear()
    monkeypatch.setattr(engines, "served_models", set())


def chunk(text="a", **more):
    """A chat chunk."""
    return sse({"choices": [{"delta": {"content": text}}], **more})


def usage(**counts):
    """A chat chunk with usage alone."""
    return sse({"choices": [], "usage": counts})


COMMON = 'gen_ai_operation_name="chat",gen_ai_provider_name="vllm",gen_ai_request_model="m"'


class Metrics:
    """A registry of its own, a clock, and requests that feed it."""

    def __init__(self, **observer):
        self.clock = FakeClock()
        self.registry = CollectorRegistry()
        self.observer = MetricsObserver(instruments(self.registry), **observer)

    def serve(self, *steps, model="m", path="/v1/chat/completions", server=None, tracer=None):
        """Serve one request that asks for a stream of this model."""
        body = b'{"model": "%s", "stream": true}' % model.encode()
        server = server or Server(body)
        app = scripted(self.clock, *steps)
        more = {"tracer": tracer} if tracer else {}
        middleware = watched(app, self.observer, clock=self.clock, **more)
        asyncio.run(middleware(http_scope(path), server.receive, server.send))

    @property
    def samples(self):
        """Every sample that is not 0 and no bucket, as the text format writes it."""
        return [x for x in self.lines if not x.endswith(" 0.0") and "_bucket{" not in x]

    @property
    def lines(self):
        """The scrape without comments; `*` for the labels that all requests have."""
        lines = classic(self.registry).decode().replace(COMMON, "*").splitlines()
        return [x for x in lines if not x.startswith("#")]

    @property
    def label_sets(self):
        """Every label set of every metric."""
        return {
            (sample.name, *sorted(sample.labels.items()))
            for family in self.registry.collect()
            for sample in family.samples
        }

    def value(self, name, **labels):
        """The sum of the samples of this name that have these labels."""
        return sum(
            sample.value
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )


ANSWER = (
    STREAM,
    *(10 * MS, chunk()),
    *(10 * MS, chunk()),
    *(30 * MS, chunk()),
    usage(prompt_tokens=8, completion_tokens=3, prompt_tokens_details={"cached_tokens": 4}),
    *(5 * MS, DONE, END),
)


def test_one_request_in_the_whole_scrape():
    """Each number that a streamed answer leaves, and no other."""
    metrics = Metrics()

    metrics.serve(*ANSWER)

    assert (
        snapshot(
            [
                'gen_ai_server_request_duration_seconds_count{error_type="",*} 1.0',
                'gen_ai_server_request_duration_seconds_sum{error_type="",*} 0.055',
                'gen_ai_server_time_to_first_token_seconds_count{*,llm_trace_start_state="partial"} 1.0',
                'gen_ai_server_time_to_first_token_seconds_sum{*,llm_trace_start_state="partial"} 0.01',
                "gen_ai_server_time_per_output_token_seconds_count{*} 1.0",
                "gen_ai_server_time_per_output_token_seconds_sum{*} 0.02",
                'llm_trace_phase_duration_seconds_count{*,llm_trace_phase="unattributed",llm_trace_start_state=""} 1.0',
                'llm_trace_phase_duration_seconds_sum{*,llm_trace_phase="unattributed",llm_trace_start_state=""} 0.01',
                'llm_trace_phase_duration_seconds_count{*,llm_trace_phase="decode",llm_trace_start_state=""} 1.0',
                'llm_trace_phase_duration_seconds_sum{*,llm_trace_phase="decode",llm_trace_start_state=""} 0.04',
                'llm_trace_phase_duration_seconds_count{*,llm_trace_phase="finish",llm_trace_start_state=""} 1.0',
                'llm_trace_phase_duration_seconds_sum{*,llm_trace_phase="finish",llm_trace_start_state=""} 0.005',
                'llm_trace_ttft_phase_seconds_total{*,llm_trace_phase="unattributed",llm_trace_ttft_band="0.1"} 0.01',
                'llm_trace_ttft_requests_total{*,llm_trace_ttft_band="0.1"} 1.0',
                "llm_trace_time_to_first_token_or_end_seconds_count{*} 1.0",
                "llm_trace_time_to_first_token_or_end_seconds_sum{*} 0.01",
                "llm_trace_time_to_first_answer_seconds_count{*} 1.0",
                "llm_trace_time_to_first_answer_seconds_sum{*} 0.01",
                "llm_trace_time_per_output_chunk_seconds_count{*} 2.0",
                "llm_trace_time_per_output_chunk_seconds_sum{*} 0.04",
                'llm_trace_requests_total{*,llm_trace_last_phase="finish",llm_trace_outcome="ok"} 1.0',
                "llm_trace_usage_input_tokens_total{*} 8.0",
                "llm_trace_usage_output_tokens_total{*} 3.0",
                "llm_trace_usage_cache_read_input_tokens_total{*} 4.0",
            ]
        )
        == metrics.samples
    )


def test_a_whole_histogram():
    """The buckets of one request: cumulative, with every bound, in the official order."""
    metrics = Metrics()

    metrics.serve(*ANSWER)

    name = s.TIME_PER_OUTPUT_CHUNK.prometheus
    assert snapshot(
        [
            'llm_trace_time_per_output_chunk_seconds_bucket{*,le="0.001"} 0.0',
            'llm_trace_time_per_output_chunk_seconds_bucket{*,le="0.0025"} 0.0',
            'llm_trace_time_per_output_chunk_seconds_bucket{*,le="0.005"} 0.0',
            'llm_trace_time_per_output_chunk_seconds_bucket{*,le="0.01"} 1.0',
            'llm_trace_time_per_output_chunk_seconds_bucket{*,le="0.025"} 1.0',
            'llm_trace_time_per_output_chunk_seconds_bucket{*,le="0.05"} 2.0',
            'llm_trace_time_per_output_chunk_seconds_bucket{*,le="0.075"} 2.0',
            'llm_trace_time_per_output_chunk_seconds_bucket{*,le="0.1"} 2.0',
            'llm_trace_time_per_output_chunk_seconds_bucket{*,le="0.15"} 2.0',
            'llm_trace_time_per_output_chunk_seconds_bucket{*,le="0.2"} 2.0',
            'llm_trace_time_per_output_chunk_seconds_bucket{*,le="0.3"} 2.0',
            'llm_trace_time_per_output_chunk_seconds_bucket{*,le="0.4"} 2.0',
            'llm_trace_time_per_output_chunk_seconds_bucket{*,le="0.5"} 2.0',
            'llm_trace_time_per_output_chunk_seconds_bucket{*,le="0.75"} 2.0',
            'llm_trace_time_per_output_chunk_seconds_bucket{*,le="1.0"} 2.0',
            'llm_trace_time_per_output_chunk_seconds_bucket{*,le="2.5"} 2.0',
            'llm_trace_time_per_output_chunk_seconds_bucket{*,le="5.0"} 2.0',
            'llm_trace_time_per_output_chunk_seconds_bucket{*,le="7.5"} 2.0',
            'llm_trace_time_per_output_chunk_seconds_bucket{*,le="10.0"} 2.0',
            'llm_trace_time_per_output_chunk_seconds_bucket{*,le="20.0"} 2.0',
            'llm_trace_time_per_output_chunk_seconds_bucket{*,le="40.0"} 2.0',
            'llm_trace_time_per_output_chunk_seconds_bucket{*,le="80.0"} 2.0',
            'llm_trace_time_per_output_chunk_seconds_bucket{*,le="+Inf"} 2.0',
            "llm_trace_time_per_output_chunk_seconds_count{*} 2.0",
            "llm_trace_time_per_output_chunk_seconds_sum{*} 0.04",
        ]
    ) == [x for x in metrics.lines if name in x]


def test_a_request_that_is_no_generation_leaves_nothing():
    """Pages and assets are not counted among requests to a model."""
    metrics = Metrics()
    before = metrics.label_sets

    metrics.serve(response_start("text/html"), END, path="/page")

    assert before == metrics.label_sets


def test_bands_sum_to_the_time_to_first_token():
    """Seconds by phase and band add up to the TTFT histogram, and its count to the requests'."""
    metrics = Metrics()
    chosen = random.Random(7)  # noqa: S311
    for _ in range(50):
        wait = chosen.randrange(1, 40_000)
        metrics.serve(wait * MS, llm_trace.admitted, wait * MS, STREAM, 3 * MS, chunk(), DONE, END)

    ttft = s.TIME_TO_FIRST_TOKEN.prometheus
    assert metrics.value(f"{ttft}_sum") == pytest.approx(
        metrics.value(s.TTFT_PHASE.prometheus), rel=1e-12
    )
    assert metrics.value(f"{ttft}_count") == metrics.value(s.TTFT_REQUESTS.prometheus) == 50


def test_bands_that_nobody_has_reached_stand_at_zero():
    """The first slow requests of an incident count: a series that is born with them shows no growth."""
    metrics = Metrics()
    metrics.serve(STREAM, 3 * MS, chunk(), DONE, END)

    bands = [
        {sample.labels["llm_trace_ttft_band"] for sample in family.samples}
        for family in metrics.registry.collect()
        if f"{family.name}_total" in {s.TTFT_PHASE.prometheus, s.TTFT_REQUESTS.prometheus}
    ]
    assert [set(s.TTFT_BAND_LABELS)] * 2 == bands


@pytest.mark.parametrize("band", range(len(s.TTFT_BANDS)))
def test_a_ttft_on_a_bound_is_in_its_band(band):
    """The label is the upper bound, inclusive."""
    metrics = Metrics()
    bound = min(s.TTFT_BANDS[band], 100)

    metrics.serve(STREAM, round(bound * 1000) * MS, chunk(), DONE, END)

    found = metrics.value(s.TTFT_REQUESTS.prometheus, llm_trace_ttft_band=s.TTFT_BAND_LABELS[band])
    assert found == 1


def hostile(number, chosen):
    """A request of a client that wants labels: model, path and error differ each time."""
    noise = f"{number}-{chosen.random()}"
    failing = [
        (response_start(status=400 + number % 100), END),
        (STREAM, sse({"error": {"type": noise}}), END),
        (STREAM, chunk(), sse({"error": {"code": noise}}), END),
        (STREAM, chunk(model=noise), DONE, END),
        (response_start(), response_body(b'{"model": "%s"}' % noise.encode())),
    ]
    return {
        "steps": chosen.choice(failing),
        "model": noise if number % 2 else "\\ud800" + noise,
        "path": f"/{noise}/v1/chat/completions",
    }


def test_no_client_can_grow_the_labels():
    """After the bounds are reached, thousands of hostile requests make no new label set."""
    metrics, chosen = Metrics(), random.Random(3)  # noqa: S311

    def attack(requests):
        for number in requests:
            request = hostile(number, chosen)
            metrics.serve(*request.pop("steps"), **request)
        return metrics.label_sets

    settled = attack(range(3000))

    assert settled == attack(range(3000, 10_000))
    assert len(settled) < 60_000
    assert b"ud800" not in classic(metrics.registry)


def engine(model):
    """Hand the request to an engine under this name."""
    llm_trace.engine_call("chat", model).__enter__()


def test_a_scrape_survives_any_model_name():
    """A name that no exporter can encode, or that is no name, is `other`."""
    metrics = Metrics()
    for model in (r"\ud800", r"a\nb", "x" * 5000):
        metrics.serve(STREAM, chunk(), DONE, END, model=model)
    for model in ("\udfff", "y" * 300):
        call = partial(engine, model)
        metrics.serve(call, STREAM, chunk(), DONE, END)

    models = {dict(x[1:]).get("gen_ai_request_model") for x in metrics.label_sets} - {None}
    assert {"other", "?", "x" * 256} == models
    assert classic(metrics.registry)


@pytest.mark.parametrize(
    ("served", "engine", "model", "steps", "expected"),
    [
        (("a",), (), "a", ANSWER, "a"),
        (("a",), (), "m", ANSWER, "other"),
        ((), ("m",), "m", (response_start(status=500), END), "m"),
        ((), (), "m", (response_start(status=500), END), "other"),
        ((), (), "m", ANSWER, "m"),
        ((), (), "", ANSWER, "other"),
        ((), (), "m", (STREAM, DONE, END), "other"),
    ],
)
def test_a_model_is_a_label_only_where_it_is_served(served, engine, model, steps, expected):
    """Declared, known by the engine, or one that answered with tokens; else `other`."""
    engines.served_models.update(engine)
    metrics = Metrics(served_models=served)

    metrics.serve(*steps, model=model)

    assert metrics.value(s.REQUESTS.prometheus, gen_ai_request_model=expected) == 1


def test_models_are_learned_up_to_a_bound():
    """The first 32 that answer are labels, and stay so."""
    metrics = Metrics()

    for number in (*range(40), 0, 39):
        metrics.serve(STREAM, chunk(), usage(completion_tokens=1), DONE, END, model=f"m{number}")

    counts = {
        n: metrics.value(s.REQUESTS.prometheus, gen_ai_request_model=n) for n in ("m0", "m31")
    }
    assert {"m0": 2, "m31": 1} == counts
    assert metrics.value(s.REQUESTS.prometheus, gen_ai_request_model="other") == 9


def test_error_types_are_bounded():
    """Past the bound they are OpenTelemetry's `_OTHER`; known ones keep their name."""
    metrics = Metrics()
    duration = f"{s.REQUEST_DURATION.prometheus}_count"

    for number in (*range(module.MAX_ERROR_TYPES + 5), 0):
        metrics.serve(STREAM, sse({"error": {"type": f"e{number}"}}), END)

    assert metrics.value(duration, error_type="_OTHER") == 5
    assert metrics.value(duration, error_type="e0") == 2


@pytest.mark.parametrize(("declared", "expected"), [(("rerank",), "rerank"), ((), "other")])
def test_a_phase_of_the_app_is_a_label_where_it_is_declared(declared, expected):
    """Undeclared ones are summed up as `other`, each request once."""
    metrics, opened = Metrics(phases=declared), []

    def enter(name):
        return lambda: opened.append(llm_trace.phase(name).__enter__())

    def leave():
        opened.pop().__exit__(None, None, None)

    metrics.serve(
        *(enter("rerank"), 5 * MS, leave),
        *(enter("secret"), 7 * MS, leave),
        *(STREAM, chunk(), DONE, END),
    )

    name = s.PHASE_DURATION.prometheus
    sums = {p: metrics.value(f"{name}_sum", llm_trace_phase=p) for p in ("rerank", "other")}
    assert (
        {"rerank": 0.005, "other": 0.007} if declared else {"rerank": 0, "other": 0.012}
    ) == sums
    assert metrics.value(f"{name}_count", llm_trace_phase=expected) == 1
    assert metrics.value(s.TTFT_PHASE.prometheus) == pytest.approx(0.012)


def test_the_start_state_is_kept_for_prefill():
    """It labels the prefill phase and TTFT, and is empty on the other phases."""
    metrics, calls = Metrics(), []

    def engine():
        call = llm_trace.engine_call("chat", "m").__enter__()
        calls.append(call)
        call.mark("scheduled")
        call.usage(input_tokens=8, cached_tokens=8)

    metrics.serve(
        *(MS, engine, MS, lambda: calls[0].mark("first_token"), MS),
        *(STREAM, chunk(), DONE, END),
    )

    name = f"{s.PHASE_DURATION.prometheus}_count"
    states = {
        p: metrics.value(name, llm_trace_phase=p, llm_trace_start_state="cached") for p in s.PHASES
    }
    assert {"prefill": 1} == {p: n for p, n in states.items() if n}
    assert metrics.value(
        f"{s.TIME_TO_FIRST_TOKEN.prometheus}_count", llm_trace_start_state="cached"
    )


@pytest.mark.parametrize(
    ("steps", "or_end", "ttft"),
    [
        ((STREAM, MS, chunk(), DONE, END), 1, 1),
        ((STREAM, MS, chunk(), END), 1, 1),
        ((STREAM, MS, DONE, END), 1, 0),
        ((MS, response_start(status=429), END), 1, 0),
        ((STREAM, MS, chunk(), sse({"error": {"type": "x"}}), END), 1, 0),
        ((STREAM, MS, chunk(), RECEIVE), 1, 0),
        ((response_start("text/event-stream", content_encoding="gzip"), MS, END), 0, 0),
    ],
)
def test_who_has_a_first_token(steps, or_end, ttft):
    """TTFT takes what succeeded, or was truncated after it; `or_end` every wait that we saw."""
    metrics = Metrics()
    asked = {"type": "http.request", "body": b'{"stream": true}', "more_body": False}

    metrics.serve(*steps, server=Server(chunks=[asked, {"type": "http.disconnect"}]))

    assert (or_end, ttft) == (
        metrics.value(f"{s.TTFT_OR_END.prometheus}_count"),
        metrics.value(f"{s.TIME_TO_FIRST_TOKEN.prometheus}_count"),
    )


def test_reasoning_alone_has_no_time_to_first_answer():
    """The first token counts, an answer there was none."""
    metrics = Metrics()

    metrics.serve(STREAM, MS, sse({"choices": [{"delta": {"reasoning": "a"}}]}), DONE, END)

    names = (s.TIME_TO_FIRST_TOKEN, s.TIME_TO_FIRST_ANSWER)
    assert [1, 0] == [metrics.value(f"{m.prometheus}_count") for m in names]


@pytest.mark.parametrize(
    ("marks", "usage", "expected"),
    [
        (("first_token",), {"input_tokens": 8, "cached_tokens": 3}, 5),
        (("first_token",), {"input_tokens": 8, "cached_tokens": 0}, 8),
        (("first_token",), {"input_tokens": 8}, 0),
        (("first_token",), {}, 0),
        (("scheduled",), {"input_tokens": 8}, 0),
    ],
)
def test_prompt_tokens_computed_for_nobody_are_wasted(marks, usage, expected):
    """The client left before its first token, and the engine had computed the prompt."""
    metrics = Metrics()

    def engine():
        call = llm_trace.engine_call("chat", "m").__enter__()
        for mark in marks:
            call.mark(mark)
        call.usage(**usage)

    asked = {"type": "http.request", "body": b"{}", "more_body": False}
    server = Server(chunks=[asked, {"type": "http.disconnect"}])
    metrics.serve(engine, MS, RECEIVE, server=server)

    assert expected == metrics.value(s.USAGE_WASTED.prometheus)


@pytest.mark.parametrize(
    ("sampled", "format_", "expected"),
    [
        (True, openmetrics, True),
        (True, classic, False),
        (False, openmetrics, False),
    ],
)
def test_exemplars_lead_to_sampled_traces_alone(sampled, format_, expected):
    """Only sampled requests have exemplars, and only OpenMetrics shows them."""
    metrics = Metrics()

    metrics.serve(*ANSWER, tracer=SpanRecorder(sampled=sampled).tracer())

    text = format_(metrics.registry).decode()
    found = {frozenset(x.split(",")) for x in re.findall(r" # \{(.*?)\}", text)}
    ids = {f'trace_id="{TRACE:032x}"', f'span_id="{1:016x}"'}
    assert found == ({frozenset(ids)} if expected else set())
    assert expected is ("trace_id" in text)


def test_an_unsampled_request_has_the_same_metrics():
    """Sampling decides about spans, never about numbers."""
    sampled, unsampled = Metrics(), Metrics()

    sampled.serve(*ANSWER, tracer=SpanRecorder().tracer())
    unsampled.serve(*ANSWER, tracer=SpanRecorder(sampled=False).tracer())

    assert classic(sampled.registry) == classic(unsampled.registry)


def test_the_expected_ttft_stands_beside_the_measured_one():
    """By the same labels, once a request of which something is expected."""
    metrics = Metrics(expect=lambda record: record.usage.input_tokens and 0.25)
    metrics.serve(*ANSWER)
    metrics.serve(STREAM, 10 * MS, chunk(), DONE, END)

    name = s.EXPECTED_TIME_TO_FIRST_TOKEN.prometheus
    assert metrics.value(f"{name}_count", llm_trace_start_state="partial") == 1
    assert metrics.value(f"{name}_sum") == 0.25
    assert metrics.value(f"{s.TIME_TO_FIRST_TOKEN.prometheus}_count") == 2


class HeldBack(Server):
    """A client whose server holds two messages back: one before the first token, one after."""

    def __init__(self, clock):
        super().__init__(b'{"model": "m", "stream": true}')
        self._clock = clock

    async def send(self, message):
        """Take a message, held back for 20 ms and 70 ms."""
        wait = {1: 20 * MS, 2: 70 * MS}.get(len(self.sent))
        if wait:
            await asyncio.sleep(0)
            self._clock.advance(wait)
        await super().send(message)


def test_what_held_the_answer_back_is_told_from_what_held_its_first_token():
    """Back-pressure has two histograms, and only of requests that were held."""
    metrics = Metrics()
    steps = (STREAM, chunk(), chunk(), DONE, END)

    metrics.serve(*steps)
    metrics.serve(*steps, server=HeldBack(metrics.clock))

    assert [
        "llm_trace_ttft_send_wait_seconds_count{*} 1.0",
        "llm_trace_ttft_send_wait_seconds_sum{*} 0.02",
        "llm_trace_send_wait_duration_seconds_count{*} 1.0",
        "llm_trace_send_wait_duration_seconds_sum{*} 0.09",
    ] == [line for line in metrics.samples if "send_wait" in line]


def test_how_late_a_loop_was_has_no_labels():
    """Each run of a loop's timer is a sample."""
    metrics = Metrics()

    metrics.observer.lagged(0)
    metrics.observer.lagged(300 * MS)

    assert [
        "llm_trace_event_loop_lag_seconds_count 2.0",
        "llm_trace_event_loop_lag_seconds_sum 0.3",
    ] == [line for line in metrics.samples if "event_loop" in line]
