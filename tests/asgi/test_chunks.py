"""The hot path of a chunk: it says what a full reading says, and costs the stream nothing else."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_trace.asgi.sse import TokenDetector
from llm_trace.testing import (
    FakeClock,
    Recorder,
    Server,
    drive,
    http_scope,
    response_body,
    response_start,
    scripted,
)

ALIKE = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def chunk(delta, finish=None, index=0, **more):
    """One chunk as vLLM writes it."""
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}
    return b"data: " + json.dumps({**ALIKE, "choices": [choice], **more}).encode() + b"\n\n"


TEXT = st.sampled_from(["", " a", " queue", "7", '"', 'say "hi"', "\n\n", "\\", "你", "data:"])
BODIES = st.one_of(
    TEXT.map(lambda text: chunk({"content": text})),
    TEXT.map(lambda text: chunk({"content": text})),
    TEXT.map(lambda text: chunk({"reasoning": text})),
    TEXT.map(lambda text: chunk({"content": text}, index=1)),
    TEXT.map(lambda text: chunk({"content": text}, "stop")),
    TEXT.map(lambda text: chunk({"content": text}, usage={"completion_tokens": 3})),
    st.lists(TEXT, max_size=3).map(lambda texts: b"".join(chunk({"content": t}) for t in texts)),
    st.sampled_from([b"", b": ping\n\n", b"data: [DONE]\n\n", b'data: {"choices":', b"\n\n"]),
    st.just(b'data: {"error": {"code": 503}}\n\n'),
)


class NeverUsual(TokenDetector):
    """A detector that shows no usual event, so that every chunk is fed to it."""

    usual = (b"\x00", b"\x00")


def record_of(bodies, gap=1_500_000):
    """What is recorded of a stream of these bodies, a gap apart."""
    clock, recorder = FakeClock(), Recorder()
    steps = [step for body in bodies for step in (gap, response_body(body, more=True))]
    app = scripted(clock, response_start("text/event-stream"), *steps, response_body())
    asyncio.run(drive(app, recorder, clock=clock))
    return recorder.record


@given(st.lists(BODIES, max_size=12))
def test_a_stream_is_recorded_as_if_every_chunk_were_read(bodies):
    """Tokens, gaps, finish, usage and errors are what feeding each chunk in full would give."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("llm_trace.asgi.reply.TokenDetector", NeverUsual)
        expected = record_of(bodies)

    assert expected == record_of(bodies)


def test_usual_chunks_are_not_fed():
    """After the first token, chunks of its shape are known by two comparisons."""
    fed = []

    class Noting(TokenDetector):
        """A detector that notes what it is fed."""

        def feed(self, body):
            """Note and feed."""
            fed.append(body)
            return super().feed(body)

    first, *others = (chunk({"content": text}) for text in (" a", " b", " c", " d"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("llm_trace.asgi.reply.TokenDetector", Noting)
        record = record_of([first, *others])

    assert [first, b""] == fed
    assert 3 == sum(record.gaps.counts)


def test_a_shape_that_served_well_is_learned_afresh():
    """A stream that stamps its chunks with the second is fed one chunk a second, not all after it.

    The detector knows how its shape served from the tokens that it was not fed, too.
    """
    fed, detectors = [], []

    class Noting(TokenDetector):
        """A detector that notes itself and what it is fed."""

        def __init__(self, framing, memory):
            super().__init__(framing, memory)
            detectors.append(self)

        def feed(self, body):
            """Note and feed."""
            fed.append(body)
            return super().feed(body)

    bodies = [chunk({"content": " a"}, created=second) for second in range(1, 5) for _ in range(20)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("llm_trace.asgi.reply.TokenDetector", Noting)
        record_of(bodies)

    assert [*bodies[::20], b""] == fed
    assert [len(bodies)] == [detector.facts.token_events for detector in detectors]


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_bodies_of_other_kinds_are_fed(kind):
    """Servers hand buffers through, which have no prefix to compare: the record is the same."""
    bodies = [chunk({"content": text}) for text in (" a", " b", " c")]

    assert record_of(bodies) == record_of([kind(body) for body in bodies])


def test_a_last_chunk_that_carries_a_token_ends_the_stream():
    """A token in the very last message is counted, and the request ends with it."""
    clock, recorder = FakeClock(), Recorder()
    bodies = [chunk({"content": " a"}), chunk({"content": " b"})]
    app = scripted(
        clock,
        response_start("text/event-stream"),
        *(response_body(body, more=body is bodies[0]) for body in bodies),
        5_000,
    )
    server = asyncio.run(drive(app, recorder, clock=clock, scope=http_scope(), server=Server()))

    assert b"".join(bodies) == server.body
    assert 1 == sum(recorder.record.gaps.counts)
    assert recorder.record.finished == recorder.record.moments["last_token_sent"]
