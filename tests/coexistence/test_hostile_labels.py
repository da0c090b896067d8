"""Ten thousand hostile requests: no client can make a label, whatever it sends."""

import asyncio
import json
import random

import pytest

import llm_trace
from llm_trace import semconv as s
from llm_trace.observers.metrics import Instruments
from llm_trace.observers.recorder import MetricsObserver
from llm_trace.testing import FakeClock, Server, http_scope, response_body, sse, watched

REQUESTS = 10_000
WARM = 2_000
PATHS = ("/v1/chat/completions", "/v1/embeddings", "/v1/completions", "/{}", "/{}/generate")
STATUSES = (200, 200, 200, 400, 404, 429, 500, 503, 504, 299, 799)


class Hostile:
    """A client and an app that passes on whatever it was sent, both without shame."""

    def __init__(self, seed):
        self.random = random.Random(seed)  # noqa: S311 - a repeatable story

    def word(self):
        """A word that nobody has said before, of any length and any characters."""
        letters = self.random.choices('A\xe9\u4e2d\ud800\n"', k=self.random.choice((1, 8, 300)))
        return "".join(letters) + str(self.random.getrandbits(64))

    def request(self):
        """A scope and the body's bytes."""
        path = self.random.choice(PATHS).format(self.random.getrandbits(64))
        method = self.random.choice(("POST", "GET", "BREW", self.word()[:9]))
        asked = {"model": self.word(), "stream": True, "n": 2, "stop": self.word()}
        return http_scope(path, method=method), json.dumps(asked).encode()

    async def app(self, _scope, receive, send):
        """Answer with what no app should let through."""
        await receive()
        with llm_trace.phase(self.word()):
            llm_trace.annotate(**{self.word(): self.word()})
        with llm_trace.retrieval(data_source=self.word()):
            pass
        operation = self.random.choice(("chat", "embeddings", self.word()))
        with llm_trace.engine_call(operation, self.word()) as call:
            call.mark("first_token")
            call.usage(input_tokens=3, output_tokens=2)
        kind = self.random.choice((b"text/event-stream", b"application/json", b"\xff"))
        status = self.random.choice(STATUSES)
        headers = [(b"content-type", kind)]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        if self.random.random() < 0.3:
            raise type("E" + str(self.random.getrandbits(32)), (Exception,), {})
        await send(sse({"choices": [{"delta": {"content": "a"}}]}))
        error = {"type": self.word(), "code": self.word(), "message": self.word()}
        await send(sse({"error": error} if self.random.random() < 0.3 else "[DONE]"))
        await send(response_body())


def label_sets(instruments):
    """Every series of requests; engines of other tests may still be on the page."""
    return {
        (sample.name, tuple(sorted(sample.labels.items())))
        for family in instruments.collect()
        for sample in family.samples
        if family.name != s.ENGINE_INFO.prometheus
    }


async def besiege(middleware, hostile, number):
    """So many requests, one after the other; what the app raises is the server's to see."""
    for _ in range(number):
        scope, body = hostile.request()
        server = Server(body)
        await asyncio.wait([asyncio.ensure_future(middleware(scope, server.receive, server.send))])


@pytest.mark.filterwarnings("ignore:Task exception was never retrieved")
@pytest.mark.parametrize("served", [(), ("m",)], ids=["models learned", "models declared"])
def test_label_sets_stay_constant(served):
    """After the first few have filled what is bounded, eight thousand more add no series."""
    instruments, hostile = Instruments(), Hostile(7)
    observer = MetricsObserver(instruments, served_models=served)
    middleware = watched(hostile.app, observer, clock=FakeClock())

    asyncio.run(besiege(middleware, hostile, WARM))
    before = label_sets(instruments)
    asyncio.run(besiege(middleware, hostile, REQUESTS - WARM))

    assert before == label_sets(instruments)
