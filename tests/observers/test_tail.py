"""Which traces are kept when their requests are over, and what those say that are."""

from __future__ import annotations

import asyncio
import random
import re
from contextlib import suppress
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest as classic
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
from span_recorder import MS, SpanRecorder

import llm_trace
from llm_trace import semconv as s
from llm_trace.asgi.middleware import LedgerMiddleware
from llm_trace.core.dispatch import Dispatch
from llm_trace.observers.metrics import instruments
from llm_trace.observers.recorder import MetricsObserver
from llm_trace.observers.tail import TailSampler
from llm_trace.settings import Settings
from llm_trace.testing import (
    RECEIVE,
    FakeClock,
    Recorder,
    Server,
    http_scope,
    response_body,
    response_start,
    scripted,
    sse,
)

STREAM = response_start("text/event-stream")
DONE = sse("[DONE]")
END = response_body()
TOKEN = sse({"choices": [{"delta": {"content": "a"}}]})
ORDINARY = (STREAM, MS, TOKEN, DONE, END)


class Process:
    """A process with a tail sampler: what it recorded, spans and metrics."""

    def __init__(self, share, slow=None, *, is_whole=True, sampled=True):
        self.clock = FakeClock()
        self.spans = SpanRecorder(sampled=sampled)
        self.registry = CollectorRegistry()
        self.records = Recorder()
        self.settled = []
        sampler = TailSampler(
            share, slow, settle=lambda *told: self.settled.append(told), is_whole=lambda: is_whole
        )
        observers = [
            self.spans.observer(),
            MetricsObserver(instruments(self.registry)),
            self.records,
        ]
        self.dispatch = Dispatch(self.spans.tracer(), observers, sample=sampler)

    def serve(self, *steps, headers=()):
        """Serve one request; the attributes of its root, if it is kept."""
        before = len(self.spans.spans)
        app = scripted(self.clock, *steps)
        middleware = LedgerMiddleware(
            app, settings=Settings(), dispatch=self.dispatch, clock=self.clock.clock
        )
        asked = {"type": "http.request", "body": b'{"stream": true}', "more_body": False}
        server = Server(chunks=[asked, {"type": "http.disconnect"}])
        with suppress(ValueError):
            scope = http_scope(headers=headers)
            asyncio.run(middleware(scope, server.receive, server.send))
        made = self.spans.spans[before:]
        return made[-1] if made else None


def cold():
    """A model is loaded for this request."""
    llm_trace.phase("model_load").__enter__().__exit__(None, None, None)


@pytest.mark.parametrize(
    ("why", "steps"),
    [
        (None, ORDINARY),
        (None, (response_start(status=429), END)),
        ("failed", (response_start(status=500), END)),
        ("failed", (STREAM, TOKEN, END)),
        ("failed", (STREAM, TOKEN, ValueError("no"))),
        ("cancelled", (STREAM, TOKEN, RECEIVE)),
        ("cold", (cold, *ORDINARY)),
        ("slow", (STREAM, 2000 * MS, TOKEN, DONE, END)),
        ("slow", (2000 * MS, response_start(), END)),
        (None, (STREAM, 1999 * MS, TOKEN, 5000 * MS, DONE, END)),
    ],
)
def test_who_is_kept_whatever_the_share(why, steps):
    """Slow, failed, cancelled and cold ones; a rejected one is ordinary, and so is a long one."""
    process = Process(0.0, slow=2.0)
    root = process.serve(*steps)

    assert process.settled == [(root.context.trace_id if root else 0x7AACE, why is not None)]
    assert (root and root.attributes.get(s.SAMPLING_REASON)) == why
    if why:
        assert root.attributes[s.SAMPLING_RATIO] == 1.0
        assert root.context.trace_state.to_header() == "ot=th:0"


def test_where_nothing_is_said_four_seconds_are_slow():
    """A default, so that slow ones are kept without another setting."""
    kept = [Process(0.0).serve(STREAM, ms * MS, TOKEN, DONE, END) for ms in (3999, 4000)]

    assert [root is not None for root in kept] == [False, True]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_a_share_of_the_ordinary_is_kept(share):
    """By the randomness of each trace, so that whoever else samples by this share agrees."""
    process, chosen, kept = Process(share), random.Random(1), []  # noqa: S311
    for _ in range(400):
        trace_id = chosen.getrandbits(128)
        process.spans.new_trace_id = lambda trace_id=trace_id: trace_id
        root = process.serve(*ORDINARY)
        assert (root is not None) == (trace_id % 2**56 >= (1 - share) * 2**56)
        kept += [root] if root else []

    assert len(kept) / 400 == pytest.approx(share, abs=0.06)
    for root in kept:
        assert root.attributes[s.SAMPLING_REASON] == "share"
        assert root.attributes[s.SAMPLING_RATIO] == share


def test_metrics_count_every_request_and_exemplars_lead_to_kept_traces():
    """The numbers are those of a process that keeps all."""
    pages = {}
    for share in (0.0, 1.0):
        process = Process(share, slow=2.0)
        process.serve(*ORDINARY)
        process.serve(STREAM, 2000 * MS, TOKEN, DONE, END)
        process.serve(*ORDINARY)
        pages[share] = process.registry
        assert [r.identity.sampled for r in process.records.records] == (
            [False, True, False] if share == 0 else [True] * 3
        )

    assert classic(pages[0.0]) == classic(pages[1.0])
    ids = re.findall(r'span_id="(\w+)"', openmetrics(pages[0.0]).decode())
    assert set(ids) == {f"{process.records.records[1].identity.span_id:016x}"}


def test_the_head_of_the_trace_has_the_first_word():
    """What was not sampled when it began is not looked at again."""
    process = Process(1.0, sampled=False)

    assert process.serve(response_start(status=500), END) is None
    assert process.settled == []


PARENT = (b"traceparent", b"00-0000000000000000000000000000ab80-0000000000000def-01")


@pytest.mark.parametrize(
    ("is_whole", "headers", "state"),
    [
        (True, (), "ot=th:0"),
        (False, (), ""),
        (True, (PARENT,), ""),
    ],
    ids=["ours", "a head that leaves some out", "a client's"],
)
def test_a_threshold_is_written_where_the_whole_share_is_known(is_whole, headers, state):
    """Missing is absent: who sampled before us may have left out any number."""
    root = Process(0.0, is_whole=is_whole).serve(response_start(status=500), END, headers=headers)

    assert root.context.trace_state.to_header() == state
    assert root.attributes[s.SAMPLING_RATIO] == 1.0


@pytest.mark.parametrize(
    ("before", "share", "trace", "kept", "after"),
    [
        ("ot=th:8", 0.25, 0xD0, True, "ot=th:c"),
        ("ot=th:8", 0.25, 0xB0, False, None),
        ("ot=th:f", 0.25, 0xF8, True, "ot=th:f"),
    ],
)
def test_thresholds_of_several_samplers_become_one(before, share, trace, kept, after):
    """The higher one holds, since all compare the same bits."""
    identity = replace(_identity(), trace_id=trace << 48 | 1 << 60, trace_state=before)
    record = TailSampler(share)(_record(identity))

    assert record.identity.sampled is kept
    assert after in (None, record.identity.trace_state)


def test_a_failed_one_keeps_the_threshold_that_it_came_with():
    """We add nothing, and who sampled before us has left some out."""
    identity = replace(_identity(), trace_state="ot=th:8")
    record = TailSampler(0.1)(replace(_record(identity), outcome="error"))

    assert record.identity.trace_state == "ot=th:8"


def _identity():
    return SpanRecorder().tracer().begin([], "chat")


def _record(identity):
    process = Process(1.0)
    process.serve(*ORDINARY)
    return replace(process.records.record, identity=identity)
