"""The in-band ledger: told to a caller that asked, in the narrowest way, and to nobody else."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import llm_trace
from llm_trace.core.inband import MARK
from llm_trace.testing import (
    FakeClock,
    Recorder,
    Server,
    drive,
    http_scope,
    response_body,
    response_start,
    scripted,
    sse,
)

US = 1_000
ASKING = http_scope(headers=[(b"x-llm-trace-ledger", b"1")])
STREAM = response_start("text/event-stream")
DONE = sse("[DONE]")
END = response_body()
ROLE = sse({"choices": [{"delta": {"role": "assistant"}}]})
SAID = (b"x-llm-trace-ledger", b"1")


def token(text):
    """One chat chunk."""
    return sse({"choices": [{"delta": {"content": text}}]})


def answer(*steps, scope=ASKING, settings=None, clock=None):
    """What is sent, and the record of the request."""
    clock, recorder = clock or FakeClock(), Recorder()
    app = scripted(clock, *steps)
    made = drive(app, recorder, clock=clock, scope=dict(scope), settings=settings or {})
    return asyncio.run(made).sent, recorder.record


def line(at, **us):
    """One line of the ledger."""
    document = {"v": 1, "at": at, "us": us}
    return MARK + json.dumps(document, separators=(",", ":")).encode() + b"\n"


def staged(call):
    """The moments of an engine, each some microseconds after the one before."""
    return (
        *(7 * US, call.__enter__, 3 * US, lambda: call.mark("queued")),
        *(20 * US, lambda: call.mark("scheduled"), 9 * US, lambda: call.mark("first_token")),
    )


class Call:
    """An engine call that is entered when its request runs."""

    def __enter__(self):
        self.call = llm_trace.engine_call("chat", "m").__enter__()

    def mark(self, moment):
        """Stamp a moment."""
        self.call.mark(moment)

    def end(self):
        """It returned."""
        self.call.end()


def test_a_stream_is_told_at_its_first_token_and_at_its_end():
    """Two comment lines before events that are sent anyway, in messages that are sent anyway."""
    call = Call()
    steps = (*staged(call), STREAM, ROLE, 2 * US, token("a"), 5 * US, token("b"), 4 * US, DONE, END)

    sent, record = answer(*steps)

    first = {"prepare": 7, "queue_wait": 23, "prefill": 9, "first_token": 2}
    whole = {**first, "decode": 5, "finish": 4}
    bodies = [ROLE["body"], line("first_token", **first) + token("a")["body"], token("b")["body"]]
    bodies += [line("end", **whole) + DONE["body"], b""]
    assert [{**STREAM, "headers": [*STREAM["headers"], SAID]}] == sent[:1]
    assert bodies == [message["body"] for message in sent[1:]]
    assert {phase: us * US for phase, us in whole.items()} == record.phases


def test_an_answer_in_one_piece_is_told_in_its_head():
    """A `Server-Timing` beside those that the app sends itself."""
    call = Call()
    head = response_start("application/json", server_timing="db;dur=5")
    steps = (*staged(call), 11 * US, lambda: call.mark("last_token"), call.end, US, head)

    sent, _ = answer(*steps, response_body(b"{}"))

    timing = "llm_trace_prepare;dur=0.007, llm_trace_queue_wait;dur=0.023, "
    timing += "llm_trace_prefill;dur=0.009, llm_trace_decode;dur=0.011, llm_trace_finish;dur=0.001"
    assert [*head["headers"], SAID, (b"server-timing", timing.encode())] == sent[0]["headers"]
    assert [response_body(b"{}")] == sent[1:]


PLAIN = (STREAM, token("a"), DONE, END)


@pytest.mark.parametrize(
    ("scope", "settings", "steps"),
    [
        (http_scope(), {}, PLAIN),
        (http_scope(headers=[(b"x-llm-trace-ledger", b"0")]), {}, PLAIN),
        (http_scope(method="GET", headers=[(b"x-llm-trace-ledger", b"1")]), {}, PLAIN),
        (ASKING, {"ledger_in_band": False}, PLAIN),
        *(
            (ASKING, {}, (head, token("a"), DONE, END))
            for head in (
                response_start("text/event-stream", content_encoding="gzip"),
                response_start("text/event-stream", content_length="60"),
                response_start("text/event-stream", content_digest="sha-256=:x:"),
                {**STREAM, "trailers": True},
                {**STREAM, "status": 206},
                response_start("application/x-ndjson"),
                response_start("text/plain"),
            )
        ),
        (ASKING, {}, (response_start(status=429), response_body(b"{}"))),
        (ASKING, {}, (response_start(content_encoding="br"), response_body(b"{}"))),
    ],
)
def test_everything_else_is_sent_as_it_is(scope, settings, steps):
    """Nobody asked, it is switched off, or not even a comment may be added: the very messages."""
    sent, _ = answer(*steps, scope=scope, settings=settings)

    given_ = [step for step in steps if isinstance(step, dict)]
    assert [id(message) for message in given_[: len(sent)]] == [id(message) for message in sent]


def test_names_of_the_app_are_not_told():
    """A phase that the app named is `other` to its callers."""
    phase = llm_trace.phase("secret plan")

    def leave():
        phase.__exit__(None, None, None)

    sent, _ = answer(phase.__enter__, 5 * US, leave, STREAM, token("a"), DONE, END)

    assert line("first_token", other=5) + token("a")["body"] == sent[1]["body"]


def test_a_stream_without_a_token_is_told_at_its_end():
    """No first token is made up."""
    sent, _ = answer(5 * US, STREAM, ROLE, DONE, END)

    bodies = [ROLE["body"], DONE["body"], line("end", unattributed=5)]
    assert bodies == [message["body"] for message in sent[1:]]


def test_our_own_fault_costs_the_caller_its_ledger_and_nothing_else(monkeypatch):
    """The answer goes out as the app made it."""
    monkeypatch.setattr(llm_trace.asgi.telling, "so_far", lambda *_, **__: 1 / 0)

    with llm_trace.core.faults.production():
        sent, _ = answer(*PLAIN)

    assert b"".join(step["body"] for step in PLAIN[1:]) == b"".join(x["body"] for x in sent[1:])


EVENTS = (ROLE, token("a"), token("b: llm_trace"), sse({"choices": [{"finish_reason": "stop"}]}))
WHOLE = b": ping\n\n" + b"".join(event["body"] for event in (*EVENTS, DONE))


@given(st.lists(st.integers(1, len(WHOLE) - 1), max_size=12), st.booleans())
def test_without_the_ledgers_lines_the_stream_is_the_apps(cuts, last_is_empty):
    """However it is cut: as many messages, at the same places, and the same bytes but for ours."""
    edges = sorted({0, len(WHOLE), *cuts})
    parts = [WHOLE[a:b] for a, b in pairwise(edges)]
    parts += [b""] if last_is_empty else []
    messages = [response_body(part, more=True) for part in parts[:-1]]

    sent, _ = answer(STREAM, *messages, response_body(parts[-1]))

    assert len(parts) + 1 == len(sent)
    assert [m["more_body"] for m in messages] == [m["more_body"] for m in sent[1:-1]]
    for part, message in zip(parts, sent[1:], strict=True):
        assert message["body"].endswith(part)
        added = message["body"][: len(message["body"]) - len(part)]
        assert added == b"" or added.startswith(MARK)
    body = b"".join(message["body"] for message in sent[1:])
    lines = body.split(b"\n")
    assert WHOLE == b"\n".join(one for one in lines if not one.startswith(MARK))
    assert sum(one.startswith(MARK) for one in lines) <= 2


def test_a_server_that_hears_of_the_callers_leaving_is_told_nothing_more():
    """A cancelled stream ends as it would have."""

    class Gone(Server):
        async def send(self, message):
            if message["type"] == "http.response.body":
                raise OSError("gone")
            await super().send(message)

    recorder, clock = Recorder(), FakeClock()
    run = drive(
        scripted(clock, *PLAIN), recorder, clock=clock, scope=dict(ASKING), server=Gone(b"{}")
    )
    with pytest.raises(OSError, match="gone"):
        asyncio.run(run)

    assert recorder.record.outcome == "cancelled"
