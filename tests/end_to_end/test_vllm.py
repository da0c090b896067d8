"""Real vLLM on a CPU: the ledger against the client's clock and against vLLM's own numbers.

One server for all; its SIGTERM is the last test. Twenty streams run at once on four slots; they
are begun one after another on connections that were opened and used before. In a burst of twenty
in one instant, the server's event loop parses nineteen other requests before it calls the app for
the last, which no ASGI middleware can see.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import AsyncExitStack
from statistics import median
from types import SimpleNamespace

import pytest
from crowd import STREAMS, ask_crowd
from programs import eventually
from prometheus_programs import Prometheus
from stamped_client import Connection, leave
from tap import SERVER
from vllm_reading import LLM_REQUEST, counted, ns, trace_of, ttft_phases, until_active
from vllm_server import CHAT, COMPLETIONS, MODEL, SABOTAGE, SHOWN, SLOTS, chat, completion

from llm_trace import semconv as s

pytestmark = pytest.mark.vllm

TRIES = 3
LARGEST = 5.0
"""Milliseconds between the client's TTFT and the server's."""

STARVED = 400.0
"""Milliseconds that a client may wait for a processor, over a crowd, and still tell the time."""

OWN_LATENCIES = {
    s.LATENCY_QUEUE: "vllm:request_queue_time_seconds",
    s.LATENCY_PREFILL: "vllm:request_prefill_time_seconds",
    s.LATENCY_DECODE: "vllm:request_decode_time_seconds",
}


@pytest.fixture(scope="module")
def crowd(vllm):
    """Twenty concurrent streams: what the client, the spans and both metrics pages say."""
    assert vllm.ask(CHAT, chat("warm the chat template up", 8)).status == 200
    before = vllm.scrape()
    asked = ask_crowd(vllm.port)
    traces = [trace_of(vllm, answer.trace_id) for answer in asked.answers]
    done = "vllm:request_decode_time_seconds_count"
    after = eventually(
        lambda: (page := vllm.scrape()).total(done) - before.total(done) == STREAMS and page,
        "vLLM did not count twenty requests",
        log=vllm.program,
    )
    roots = [next(x for x in trace if x.is_root) for trace in traces]
    return SimpleNamespace(asked=asked, traces=traces, roots=roots, before=before, after=after)


def test_the_streams_are_concurrent(crowd):
    """All twenty are in flight at once, so most of them queue for one of four slots."""
    assert max(root.start for root in crowd.roots) < min(root.end for root in crowd.roots)
    queued = [ttft_phases(root)["queue_wait"] for root in crowd.roots]
    assert sum(ns > 100_000_000 for ns in queued) >= STREAMS - 2 * SLOTS


def test_phases_sum_to_the_time_to_first_token(crowd):
    """For every request, to the nanosecond; and each of the engine's phases is there."""
    for root in crowd.roots:
        phases = ttft_phases(root)
        assert sum(phases.values()) == ns(root.attributes[s.TTFT])
        assert {"queue_wait", "prefill", "first_token"} <= phases.keys()
        assert root.attributes[s.ENGINE_TIER] == "engine-events"
        assert s.MOMENTS_DROPPED not in root.attributes


def test_the_server_and_its_client_agree(vllm, crowd):
    """The client's TTFT is the server's and the way there and back: within 5 ms at the median.

    The client counts from the written request, on a connection that was open and used. Up to three
    crowds are asked. Where the kernel says that the client itself waited for a processor in each of
    them, its clock says nothing of the server, and the test says so instead.
    """
    medians, waits = [], []
    while len(medians) < TRIES and (not medians or abs(medians[-1]) >= LARGEST):
        asked = ask_crowd(vllm.port) if medians else crowd.asked
        waits.append(asked.waited)
        roots = [vllm.tap.root(answer.trace_id) for answer in asked.answers]
        pairs = zip(asked.answers, roots, strict=True)
        medians.append(median(a.ttft - ns(root.attributes[s.TTFT]) for a, root in pairs) / 1e6)

    sys.stdout.write(f"client minus server TTFT, medians of {STREAMS}: {medians} ms\n")
    if abs(medians[-1]) >= LARGEST and min(waits) > STARVED:
        pytest.skip(f"the client waited {waits} ms for a processor: too busy a machine to tell")
    assert abs(medians[-1]) < LARGEST


@pytest.mark.parametrize("key", OWN_LATENCIES)
def test_the_engine_phases_are_vllms_own(crowd, key):
    """Sums and counts over the run are those of vLLM's own histograms, within 1 %."""
    own = OWN_LATENCIES[key]
    count, total = (
        crowd.after.total(f"{own}_{kind}") - crowd.before.total(f"{own}_{kind}")
        for kind in ("count", "sum")
    )
    ours = [root.attributes[key] for root in crowd.roots]

    sys.stdout.write(f"{key}: ours {sum(ours):.6f} s, vLLM's {total:.6f} s\n")
    assert len(ours) == count == STREAMS
    assert sum(ours) == pytest.approx(total, rel=0.01)


def test_one_trace_holds_both_sides(crowd):
    """Our root, its phases and vLLM's own span, each below the right one and inside its time."""
    for answer, trace, root in zip(crowd.asked.answers, crowd.traces, crowd.roots, strict=True):
        others = [span for span in trace if span is not root]
        assert [x.name for x in others].count(LLM_REQUEST) == 1
        assert {x.parent_id for x in others} == {root.span_id}
        phases = [x for x in others if x.name != LLM_REQUEST]
        assert [x.name for x in sorted(phases, key=lambda x: x.start)] == [
            *("admission", "prepare", "queue_wait", "prefill", "first_token", "decode"),
        ]
        assert all(root.start <= x.start <= x.end <= root.end for x in phases)
        assert (root.name, root.kind, root.failed) == (f"chat {MODEL}", SERVER, False)
        assert answer.response_id == root.attributes[s.RESPONSE_ID]


def test_bands_hold_the_same_seconds(crowd):
    """Seconds by phase and band add up to the TTFT sum, and to the spans band by band."""
    seconds, requests = s.TTFT_PHASE.prometheus, s.TTFT_REQUESTS.prometheus
    ttft = f"{s.TIME_TO_FIRST_TOKEN.prometheus}_sum"
    assert crowd.after.total(seconds) == pytest.approx(crowd.after.total(ttft), rel=1e-9)

    expected = {}
    for root in crowd.roots:
        bound = next(
            label
            for bound, label in zip(s.TTFT_BANDS, s.TTFT_BAND_LABELS, strict=True)
            if root.attributes[s.TTFT] <= bound
        )
        count, total = expected.get(bound, (0, 0.0))
        expected[bound] = (count + 1, total + root.attributes[s.TTFT])
    counts, totals = (_by_band(crowd, name) for name in (requests, seconds))
    assert counts == {band: count for band, (count, _) in expected.items()}
    assert totals == pytest.approx({band: total for band, (_, total) in expected.items()})


def _by_band(crowd, name):
    before, after = (page.by("llm_trace_ttft_band", name) for page in (crowd.before, crowd.after))
    grown = {band: value - before.get(band, 0.0) for band, value in after.items()}
    return {band: value for band, value in grown.items() if value}


def test_span_count_does_not_depend_on_chunks(vllm):
    """Two tokens or two hundred: a span for each phase that took time, and never one a chunk."""
    names = []
    for tokens in (2, 200):
        answer = vllm.ask(CHAT, chat("count the spans of this one", tokens))
        names.append([span.name for span in trace_of(vllm, answer.trace_id)])

    assert len(answer.events) > 50
    assert len(names[1]) == len(set(names[1])) == 8
    assert set(names[1]) - set(names[0]) <= {"decode"}  # two tokens may come in one chunk
    assert len(names[0]) == len(set(names[0]))


# --- one request, one record, whatever it is ----------------------------------------------------


def test_plain_answer(vllm):
    """A chat that is not streamed: the whole ledger and the engine's numbers, and no TTFT."""
    answer, ticks = counted(vllm, lambda: vllm.ask(CHAT, chat("all at once", 8, stream=False)))
    root = vllm.tap.root(answer.trace_id)

    assert ticks == {("ok", "finish"): 1}
    assert answer.document["usage"]["completion_tokens"] == 8
    assert root.attributes[s.USAGE_OUTPUT_TOKENS] == 8
    assert root.attributes[s.LATENCY_DECODE] > 0
    assert s.TTFT not in root.attributes
    names = {span.name for span in trace_of(vllm, answer.trace_id)}
    assert {"queue_wait", "prefill", "decode", LLM_REQUEST} <= names


def test_two_choices(vllm):
    """Two engine requests below one HTTP request are one root; tokens of both are counted."""
    answer, ticks = counted(vllm, lambda: vllm.ask(CHAT, chat("two of them", 6, n=2)))
    root = vllm.tap.root(answer.trace_id)

    assert ticks == {("ok", "finish"): 1}
    assert root.attributes[s.REQUEST_CHOICE_COUNT] == 2
    assert root.attributes[s.USAGE_OUTPUT_TOKENS] == 12
    assert sum(ttft_phases(root).values()) == ns(root.attributes[s.TTFT])


@pytest.mark.parametrize("stream", [False, True])
def test_two_prompts(vllm, stream):
    """Two prompts in one completion: one root, all tokens."""
    prompts = ["the first prompt of two", "and the other prompt"]
    body = completion(prompts, 5, stream=stream)
    answer, ticks = counted(vllm, lambda: vllm.ask(COMPLETIONS, body))
    root = vllm.tap.root(answer.trace_id)

    assert answer.status == 200
    assert ticks == {("ok", "finish"): 1}
    assert root.attributes[s.USAGE_OUTPUT_TOKENS] == 10
    assert root.name == f"text_completion {MODEL}"
    assert (s.TTFT in root.attributes) is stream


def test_streamed_completion(vllm):
    """The older route has the same phases."""
    body = completion("once upon a time there was", 12, stream=True)
    answer, ticks = counted(vllm, lambda: vllm.ask(COMPLETIONS, body))
    root = vllm.tap.root(answer.trace_id)

    assert ticks == {("ok", "finish"): 1}
    assert {"queue_wait", "prefill", "first_token"} <= ttft_phases(root).keys()
    assert root.attributes[s.USAGE_INPUT_TOKENS] > 0


def test_one_token(vllm):
    """The first output is also the last: TTFT and its phases are there, no time per token."""
    series = f"{s.TIME_PER_OUTPUT_TOKEN.prometheus}_count"
    before = vllm.scrape().total(series)
    answer, ticks = counted(vllm, lambda: vllm.ask(CHAT, chat("just one", 1, **SHOWN)))
    root = vllm.tap.root(answer.trace_id)

    assert ticks == {("ok", "finish"): 1}
    assert {"queue_wait", "prefill", "first_token"} <= ttft_phases(root).keys()
    assert vllm.scrape().total(series) == before


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (chat("nobody serves this", 4, model="nobody"), 404),
        (chat("a temperature of no use", 4, temperature=-7), 400),
        (b'{"model": "tiny", "messages": [', 400),
    ],
    ids=["unknown model", "bad value", "bad JSON"],
)
def test_rejected(vllm, body, status):
    """A request that vLLM refuses: one rejected root, never admitted, no engine, no TTFT."""
    answer, ticks = counted(vllm, lambda: vllm.ask(CHAT, body))
    root = vllm.tap.root(answer.trace_id)

    assert answer.status == status
    assert ticks == {("rejected", "admission"): 1}
    assert root.attributes[s.OUTCOME] == "rejected"
    assert root.attributes[s.ERROR_TYPE] == str(status)
    assert root.attributes[s.HTTP_STATUS] == status
    assert (root.name, root.failed, s.TTFT in root.attributes) == ("chat", False, False)


def test_client_leaves_while_decoding(vllm):
    """A client that hangs up mid-stream: cancelled in decode, with the TTFT that it had."""
    body = chat("a very long answer", 12_000)
    answer, ticks = counted(vllm, lambda: leave(vllm.port, CHAT, body, after_tokens=5))
    root = vllm.tap.root(answer.trace_id)

    assert ticks == {("cancelled", "decode"): 1}
    assert root.attributes[s.OUTCOME] == "cancelled"
    assert root.attributes[s.LAST_PHASE] == "decode"
    assert sum(ttft_phases(root).values()) == ns(root.attributes[s.TTFT])
    assert root.failed is False


def test_client_leaves_while_queued(vllm):
    """A client that gives up in the queue: cancelled in `queue_wait`, inferred from the counts.

    vLLM itself says nothing of a request before its first output. The four slots are kept busy
    until the fifth client has left; then their clients leave, too.
    """

    async def scenario():
        async with AsyncExitStack() as stack:
            every = [
                await stack.enter_async_context(Connection(vllm.port)) for _ in range(SLOTS + 1)
            ]
            for number, connection in enumerate(every[:-1]):
                running = await connection.begin(CHAT, chat(f"hold slot {number}", 15_900))
                while not running.token_stamps():
                    await connection.read_some(running)
            queued = await every[-1].begin(CHAT, chat("wait in vain", 8))
            phases = {"decode": SLOTS, "queue_wait": 1}
            page = await asyncio.to_thread(until_active, vllm, phases)
            return queued.trace_id, page.total(s.ENGINE_OLDEST_WAITING.prometheus)

    (trace_id, oldest), ticks = counted(vllm, lambda: asyncio.run(scenario()), SLOTS + 1)
    root = vllm.tap.root(trace_id)

    assert ticks == {("cancelled", "decode"): SLOTS, ("cancelled", "queue_wait"): 1}
    assert (root.attributes[s.OUTCOME], root.attributes[s.LAST_PHASE]) == (
        "cancelled",
        "queue_wait",
    )
    assert root.attributes[s.PHASE_SOURCE] == "inferred"
    assert 0 < oldest < (root.end - root.start) / 1e9
    assert s.TTFT not in root.attributes


def test_the_same_request_id_twice_at_once(vllm):
    """Ids that clients choose may collide; each request keeps its own moments."""

    async def both():
        async with Connection(vllm.port) as one, Connection(vllm.port) as other:
            asked = (
                connection.ask(CHAT, chat(f"twin {n}", 40), headers={"x-request-id": "same"})
                for n, connection in enumerate((one, other))
            )
            return await asyncio.gather(*asked)

    answers, ticks = counted(vllm, lambda: asyncio.run(both()), 2)
    roots = [vllm.tap.root(answer.trace_id) for answer in answers]

    assert ticks == {("ok", "finish"): 2}
    assert len({root.attributes[s.ENGINE_REQUEST_ID] for root in roots}) == 2
    for root in roots:
        assert root.attributes[s.USAGE_OUTPUT_TOKENS] == 40
        assert sum(ttft_phases(root).values()) == ns(root.attributes[s.TTFT])


# --- metrics ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def prometheus(vllm, prometheus_programs, tmp_path_factory):
    """A real Prometheus that scrapes vLLM every second."""
    server = Prometheus(prometheus_programs, vllm.port, tmp_path_factory.mktemp("prometheus"))
    yield server
    server.stop()


@pytest.mark.services
def test_prometheus_reads_what_we_count(crowd, prometheus):
    """Every series of our metrics that the page shows is one that Prometheus has."""
    ours = tuple(m.prometheus for m in s.METRICS)
    families = crowd.after.families.values()
    shown = {x.name for family in families for x in family.samples if x.name.startswith(ours)}

    assert len(shown) > len(s.METRICS)
    eventually(
        lambda: shown <= set(prometheus.api("label/__name__/values")),
        "Prometheus lacks series of the page",
    )
    assert prometheus.api("query?query=up")["result"][0]["value"][1] == "1"


@pytest.mark.services
def test_promtool_has_nothing_to_say(vllm, crowd, prometheus_programs):
    """Names, units, types and help of our own metrics are as Prometheus wants them."""
    names = tuple(m.prometheus.removesuffix("_total") for m in s.METRICS)
    lines = [
        line
        for line in vllm.scrape().text.splitlines()
        if line.split(" ")[2 if line.startswith("#") else 0].startswith(names)
    ]
    checked = subprocess.run(
        [prometheus_programs / "promtool", "check", "metrics"],
        input="\n".join([*lines, ""]),
        capture_output=True,
        text=True,
        check=False,
    )

    assert len(lines) > 100
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_exemplars_over_otlp_lead_to_their_traces(vllm, crowd):
    """vLLM's own page never shows exemplars, as it is classic text; the OTLP metrics have them."""
    name = s.TIME_TO_FIRST_TOKEN.name
    found = eventually(
        lambda: [
            exemplar
            for point in vllm.tap.metrics().get(name, {}).get("histogram", {}).get("dataPoints", ())
            for exemplar in point["exemplars"]
        ],
        "no exemplar was exported",
        log=vllm.program,
    )

    def shown():
        """By both ids, since a client may send several requests in one trace."""
        spans = (span for span in vllm.tap.spans() if span.is_root)
        by_ids = {(x.trace_id, x.span_id): x.attributes.get(s.TTFT) for x in spans}
        return [by_ids.get((one["traceId"], one["spanId"])) for one in found]

    told = [one["value"]["asDouble"] for one in found]
    eventually(lambda: shown() == told, "exemplars name other spans", log=vllm.program)


def test_nothing_is_left_over(vllm, crowd):
    """After all of it no request is in flight and no fault of ours was contained."""
    page = eventually(
        lambda: not (page := vllm.scrape()).total(s.REQUESTS_ACTIVE.prometheus) and page,
        "requests are still counted as active",
        log=vllm.program,
    )

    assert {x.labels["llm_trace_phase"] for x in page.samples(s.REQUESTS_ACTIVE.prometheus)}
    assert {
        x.labels["llm_trace_reason"]: x.value for x in page.samples(s.ERRORS_INTERNAL.prometheus)
    } == {"none": 0}
    assert page.total(s.SPANS_DROPPED.prometheus) == 0


# --- faults and the end: these change the server, so they come last -----------------------------


def test_a_fault_of_ours_is_logged_once_and_harms_nobody(vllm):
    """Broken state of ours: the answers are whole, two faults are counted, one is logged."""
    usage = {"stream_options": {"include_usage": True}}
    body = chat("go on, whatever happens to the trace", 4, **usage)
    answers = [vllm.ask(CHAT, body, headers=SABOTAGE) for _ in range(2)]
    answers.append(vllm.ask(CHAT, body))
    whole = vllm.tap.root(answers[-1].trace_id)
    page = vllm.scrape()

    assert [answer.status for answer in answers] == [200, 200, 200]
    assert [answer.events[-1]["usage"]["completion_tokens"] for answer in answers] == [4, 4, 4]
    assert page.total(s.ERRORS_INTERNAL.prometheus, llm_trace_reason="finish") == 2
    assert page.total(s.REQUESTS_ACTIVE.prometheus) == 0
    assert vllm.program.text().count("llm_trace: fault in finish, contained") == 1
    assert whole.attributes[s.OUTCOME] == "ok"


def test_spans_of_the_last_request_survive_sigterm(vllm):
    """The server is told to end at once after an answer, and its spans still arrive."""
    answer = vllm.ask(CHAT, chat("the last words", 4))
    vllm.program.terminate(within=60)

    root = vllm.tap.root(answer.trace_id, within=5)
    assert root.attributes[s.OUTCOME] == "ok"
    assert {"queue_wait", "prefill", "decode"} <= {x.name for x in vllm.tap.trace(answer.trace_id)}
