"""Field reports 17 to 31: OpenTelemetry in Python. Each by the smallest input that shows it."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
from concurrent.futures import ThreadPoolExecutor

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from reported import DONE, MS, TOKEN, Traced
from starlette.applications import Starlette
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

import llm_trace
from llm_trace import semconv as s

CHAT = "/v1/chat/completions"
TRACE, SPAN = "a" * 32, "b" * 16
PARENT = f"00-{TRACE}-{SPAN}-01"


def chat(answer):
    """A Starlette app whose chat route gives what `answer` makes."""
    return Starlette(routes=[Route(CHAT, answer, methods=["POST"])])


def streaming(_request=None):
    """One token."""
    return StreamingResponse(iter([TOKEN, DONE]), media_type="text/event-stream")


def errors(caplog):
    """What was logged at warning or above."""
    return [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("how", ["closed in another task", "dropped"])
def test_17_a_stream_that_is_closed_elsewhere_logs_no_context_error(how, caplog):
    """Its phase ends exactly once, whoever closes the generator, and nothing is logged."""

    @llm_trace.phase("generator")
    async def tokens():
        while True:
            yield TOKEN

    async def close(generator):
        await generator.aclose()

    async def begin_here_end_there(_scope, _receive, _send):
        generator = tokens()
        await generator.__anext__()
        if how == "dropped":
            del generator
            gc.collect()
            await asyncio.sleep(0)
        else:
            await asyncio.create_task(close(generator))

    traced = Traced(begin_here_end_there)
    traced.ask()

    assert ["generator"] == [span.name for span in traced.spans() if span.name == "generator"]
    assert [] == errors(caplog)


def test_22_a_wall_clock_that_steps_back_makes_no_negative_span():
    """Sixty seconds back in mid-request: children are inside their parents all the same."""

    async def tokens():
        traced.clock.advance(100 * MS)
        traced.clock.wall -= 60_000 * MS
        yield TOKEN
        traced.clock.advance(100 * MS)
        yield DONE

    traced = Traced(chat(lambda _: StreamingResponse(tokens(), media_type="text/event-stream")))
    traced.ask()

    root = traced.root
    assert 200 * MS == root.end_time - root.start_time
    inside = [
        root.start_time <= x.start_time <= x.end_time <= root.end_time for x in traced.spans()
    ]
    assert all(inside)


class Sentinel:
    """What an SDK passes for `not given`."""


class Counted:
    """A token count of a numerical library."""

    def __index__(self):
        """What it is worth."""
        return 3


UNUSABLE = {
    "none": (None, None),
    "sentinel": (Sentinel, str(Sentinel)),
    "numpy": (Counted(), 3),
    "set": ({"a"}, ("a",)),
    "large": (2**70, str(2**70)),
    "surrogate": ("\ud800", "?"),
    "nan": (float("nan"), None),
}


@pytest.mark.parametrize("kind", UNUSABLE)
def test_27_unusable_values_are_made_usable_or_left_out(kind, caplog):
    """By us and before the SDK sees them: no warning a request, and the export encodes them."""
    value, expected = UNUSABLE[kind]

    def answer(_request):
        llm_trace.annotate(value=value)
        return Response()

    traced = Traced(chat(answer))
    traced.ask()

    assert expected == traced.root.attributes.get("value")
    assert encode_spans(traced.spans()).SerializeToString()
    assert [] == errors(caplog)


@pytest.mark.parametrize("captured", [False, True])
def test_28_a_full_batch_of_huge_prompts_can_be_received(captured):
    """512 spans of requests with 2 MB prompts are under the 4 MiB that receivers take."""
    body = json.dumps({"stream": True, "messages": [{"role": "user", "content": "x" * 2_000_000}]})
    traced = Traced(
        chat(streaming), capture_content=captured, max_body_bytes=4_000_000, max_content_bytes=4096
    )
    traced.ask(body=body.encode())

    batch = encode_spans((traced.spans() * 512)[:512]).SerializeToString()
    assert len(batch) < 4 * 1024 * 1024
    assert captured is (s.INPUT_MESSAGES in traced.roots()[0].attributes)


MALFORMED = {
    "upper case": [PARENT.upper()],
    "all zeros": [f"00-{'0' * 32}-{SPAN}-01"],
    "version ff": [f"ff{PARENT[2:]}"],
    "more behind": [f"{PARENT}-extra"],
    "two lines": [PARENT, PARENT],
    "joined": [f"{PARENT},{PARENT}"],
    "empty": [""],
    "garbage": ["\xff\x00"],
    "10 kB": ["a" * 10_000],
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_29_a_malformed_parent_is_a_new_root(kind, caplog):
    """No exception, no log line, and no span that happens to be current."""
    headers = [(b"traceparent", value.encode("latin-1")) for value in MALFORMED[kind]]
    traced = Traced(chat(streaming))

    with traced.provider.get_tracer("app").start_as_current_span("ambient"):
        traced.ask(headers=headers)

    assert traced.root.parent is None
    assert [] == errors(caplog)


@pytest.mark.parametrize("sampler", [None, ParentBased(TraceIdRatioBased(1.0))])
def test_30_an_unsampled_parent_costs_spans_and_no_metric(sampler):
    """Histograms and counters are those of the sampled case; no exemplar leads nowhere."""
    counts = []
    for flags in ("00", "01"):
        traced = Traced(chat(streaming), sampler=sampler)
        traced.ask(headers=[(b"traceparent", f"{PARENT[:-2]}{flags}".encode())])
        assert bool(traced.spans()) is (flags == "01")
        exemplars = [
            x.exemplar.labels
            for family in traced._instruments.collect()
            for x in family.samples
            if x.exemplar
        ]
        assert bool(exemplars) is (flags == "01")
        names = (s.REQUESTS.prometheus, f"{s.TIME_TO_FIRST_TOKEN.prometheus}_count")
        counts.append([traced.samples(name) for name in names])

    assert counts[0] == counts[1]


@pytest.mark.parametrize("parented", [True, False])
def test_31_one_trace_from_the_client_to_the_engine(parented, monkeypatch):
    """The engine gets our span's id, a thread's retrieval is ours, the environment is nobody's."""
    monkeypatch.setenv("TRACEPARENT", f"00-{'c' * 32}-{'d' * 16}-01")
    told = {}

    def search():
        with llm_trace.retrieval(data_source="thread"):
            pass

    async def answer(_request):
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as pool:
            await loop.run_in_executor(pool, llm_trace.bind(search))
        with llm_trace.engine_call("chat", "m") as call:
            told.update(call.headers())
        return Response()

    traced = Traced(chat(answer))
    traced.ask(headers=[(b"traceparent", PARENT.encode())] if parented else [])

    root = traced.root
    spans = {span.name: span for span in traced.spans()}
    assert {root.context.trace_id} == {span.context.trace_id for span in spans.values()}
    assert spans["retrieval thread"].parent.span_id == root.context.span_id
    _, trace_id, span_id, _ = told["traceparent"].split("-")
    (call,) = [span for span in traced.spans() if span.name == "chat m" and span is not root]
    assert f"{root.context.trace_id:032x}" == trace_id
    assert f"{call.context.span_id:016x}" == span_id
    assert ((TRACE, SPAN) if parented else None) == (
        root.parent and (f"{root.parent.trace_id:032x}", f"{root.parent.span_id:016x}")
    )
