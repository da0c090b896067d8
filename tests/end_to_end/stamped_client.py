"""An HTTP/1.1 client that stamps every read with this process's own monotonic clock.

Bytes are only kept while a request runs; they are decoded afterwards, so that the client's work
does not disturb the clock that it reads.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from contextlib import suppress

from programs import LOOPBACK

from llm_trace.core.clock import SYSTEM

_READ = 1 << 16
_LIMIT = 60.0
_now = SYSTEM.monotonic_ns


class Answer:
    """One answer: its bytes, and when they came."""

    def __init__(self, trace_id, written, span_id=""):
        self.trace_id = trace_id
        self.span_id = span_id
        self.written = written
        self.reads = []
        self._chunked = None

    def keep(self, data):
        """Keep what one read brought."""
        self.reads.append((_now(), data))

    @property
    def raw(self):
        """Head and body as they came."""
        return b"".join(data for _, data in self.reads)

    @property
    def status(self):
        """The HTTP status; 0 before there was one."""
        words = self.raw.split(b" ", 2)
        return int(words[1]) if len(words) > 1 else 0

    @property
    def headers(self):
        """The response's headers, their names in lower case."""
        head = self.raw.partition(b"\r\n\r\n")[0].decode("latin-1")
        pairs = (line.partition(":") for line in head.split("\r\n")[1:])
        return {name.strip().lower(): value.strip() for name, _, value in pairs}

    def complete(self):
        """Whether the body has come to its end; cheap, as it is asked after every read."""
        if self._chunked is None and b"\r\n\r\n" in self.raw:
            self._chunked = "chunked" in self.headers.get("transfer-encoding", "")
        if self._chunked:
            return b"".join(data for _, data in self.reads[-2:]).endswith(b"\r\n0\r\n\r\n")
        body = self.raw.partition(b"\r\n\r\n")[2]
        return self._chunked is False and len(body) >= int(self.headers.get("content-length", 0))

    @property
    def body(self):
        """The body without its transfer coding."""
        _, _, rest = self.raw.partition(b"\r\n\r\n")
        if self.headers.get("transfer-encoding") != "chunked":
            return rest
        parts = []
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            parts.append(rest[: int(size, 16)])
            rest = rest[int(size, 16) + 2 :]
        return b"".join(parts)

    @property
    def document(self):
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def events(self):
        """The JSON documents of an event stream, `[DONE]` left out."""
        data = [event.partition(b"data: ")[2] for event in self.body.split(b"\n\n")]
        return [json.loads(one) for one in data if one.startswith(b"{")]

    def token_stamps(self):
        """When each event that carries generated text came, in ns."""
        seen, held, stamps = 0, b"", []
        for at, data in self.reads:
            held += data
            events = held.split(b"\n\n")
            stamps += [at for event in events[seen:-1] if _carries_text(event)]
            seen = len(events) - 1
        return stamps

    @property
    def ttft(self):
        """From the written request to the first generated text, ns."""
        return self.token_stamps()[0] - self.written


def _carries_text(event):
    _, found, data = event.partition(b"data: ")
    if not found or data.startswith(b"[DONE]"):
        return False
    choices = json.loads(data).get("choices") or []
    return any((c.get("delta") or {}).get("content") or c.get("text") for c in choices)


class Connection:
    """One kept-alive connection to a server of ours."""

    def __init__(self, port):
        self._port = port
        self._reader = self._writer = None

    async def __aenter__(self):
        self._reader, self._writer = await asyncio.open_connection(LOOPBACK, self._port)
        return self

    async def __aexit__(self, *_):
        self.abort()
        with suppress(ConnectionError):
            await self._writer.wait_closed()

    def abort(self):
        """Hang up at once, as a client does that has lost patience."""
        self._writer.transport.abort()

    async def begin(self, path, body=None, *, method=None, headers=()):
        """Write a request; its answer, of which nothing has come yet."""
        content = b"" if body is None else _encoded(body)
        trace_id, span_id = secrets.token_hex(16), secrets.token_hex(8)
        head = [
            f"{method or ('GET' if body is None else 'POST')} {path} HTTP/1.1",
            f"host: {LOOPBACK}:{self._port}",
            f"traceparent: 00-{trace_id}-{span_id}-01",
            "content-type: application/json",
            f"content-length: {len(content)}",
            *(f"{name}: {value}" for name, value in dict(headers).items()),
        ]
        request = "\r\n".join([*head, "", ""]).encode() + content
        written = _now()
        self._writer.write(request)
        await self._writer.drain()
        return Answer(trace_id, written, span_id)

    async def read_some(self, answer):
        """Wait for more of the answer."""
        data = await asyncio.wait_for(self._reader.read(_READ), _LIMIT)
        if not data:
            raise EOFError(f"the server hung up after {answer.raw[-200:]!r}")
        answer.keep(data)

    async def read_until(self, answer, sign):
        """Wait until these bytes are somewhere in the answer."""
        while sign not in answer.raw:
            await self.read_some(answer)

    async def finish(self, answer):
        """Wait for the rest of the answer."""
        while not answer.complete():
            await self.read_some(answer)
        return answer

    async def ask(self, path, body=None, *, method=None, headers=()):
        """A whole exchange."""
        return await self.finish(await self.begin(path, body, method=method, headers=headers))


def _encoded(body):
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def ask(port, path, body=None, *, method=None, headers=()):
    """A whole exchange on a connection of its own."""

    async def exchange():
        async with Connection(port) as connection:
            return await connection.ask(path, body, method=method, headers=headers)

    return asyncio.run(exchange())


def leave(port, path, body, *, after_tokens):
    """Ask, and hang up after some tokens."""

    async def exchange():
        async with Connection(port) as connection:
            answer = await connection.begin(path, body)
            while len(answer.token_stamps()) < after_tokens:
                await connection.read_some(answer)
            return answer

    return asyncio.run(exchange())
