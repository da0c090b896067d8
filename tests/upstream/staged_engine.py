"""A staged engine as a transport of httpx or httpx2, and an app that calls it.

The engine answers on a fake clock: each step lets time pass, gives bytes or fails.
"""

from __future__ import annotations

import asyncio
import json

from llm_trace.testing import Recorder, Server, drive, response_body, response_start

URL = "http://engine:8000/v1/chat/completions"
BODY = {"model": "qwen", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
SSE = {"content-type": "text/event-stream"}
JSON = {"content-type": "application/json"}


def event(text=None, **more):
    """One chat chunk."""
    choice = {"index": 0, "delta": {} if text is None else {"content": text}}
    document = {"id": "c1", "model": "qwen-1", "choices": [{**choice, **more}]}
    return f"data: {json.dumps(document)}\n\n".encode()


USAGE = b'data: {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}\n\n'
DONE = b"data: [DONE]\n\n"
STOP = event(finish_reason="stop")
STREAM = (10, event("a"), 5, event("b"), STOP, USAGE, DONE)


class Answer:
    """One staged answer: its head, and the steps of its body."""

    def __init__(self, *steps, status=200, headers=SSE, wait=0):
        self.steps, self.status, self.headers, self.wait = steps, status, headers, wait


class Engine:
    """Gives one answer after the other and keeps what was asked; an exception is raised instead."""

    def __init__(self, clock, *answers, events=()):
        self.clock = clock
        self.events = events  # of the transport, before it writes the request
        self.answers = list(answers)
        self.asked = []
        self.closed = 0

    def head(self, request):
        """The next answer, once its head is there."""
        self.asked.append(dict(request.headers))
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        self.clock.advance(answer.wait)
        return answer

    def body(self, answer):
        """The bytes of an answer, each at its time."""
        for step in answer.steps:
            if isinstance(step, int):
                self.clock.advance(step)
            elif isinstance(step, BaseException):
                raise step
            else:
                yield step


def sync_client(module, engine):
    """A client of the library `module` whose every request goes to `engine`."""

    class Stream(module.SyncByteStream):
        def __init__(self, answer):
            self.answer = answer

        def __iter__(self):
            yield from engine.body(self.answer)

        def close(self):
            engine.closed += 1

    class Transport(module.BaseTransport):
        def handle_request(self, request):
            for name in engine.events:
                engine.clock.advance(6)
                request.extensions["trace"](name, {})
            answer = engine.head(request)
            return module.Response(answer.status, headers=answer.headers, stream=Stream(answer))

    return module.Client(transport=Transport())


def async_client(module, engine):
    """The same, asynchronous."""

    class Stream(module.AsyncByteStream):
        def __init__(self, answer):
            self.answer = answer

        async def __aiter__(self):
            for data in engine.body(self.answer):
                await asyncio.sleep(0)
                yield data

        async def aclose(self):
            engine.closed += 1

    class Transport(module.AsyncBaseTransport):
        async def handle_async_request(self, request):
            for name in engine.events:
                engine.clock.advance(6)
                await request.extensions["trace"](name, {})
            answer = engine.head(request)
            return module.Response(answer.status, headers=answer.headers, stream=Stream(answer))

    return module.AsyncClient(transport=Transport())


def serve(work, clock, *, tracer=None, settings=None, observers=()):
    """Serve one request of an app that relays the bytes which the generator `work` gives."""
    recorder = Recorder()

    async def app(_scope, receive, send):
        await receive()
        await send(response_start("text/event-stream"))
        async for data in work():
            await send(response_body(data, more=True))
        await send(response_body())

    more = {} if tracer is None else {"tracer": tracer}
    server = Server(json.dumps(BODY).encode())
    run = drive(
        app, recorder, *observers, clock=clock, server=server, settings=settings or {}, **more
    )
    asyncio.run(run)
    return recorder.record, server.body
