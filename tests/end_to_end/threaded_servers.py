"""Real servers in threads of this process, and raw clients for both versions of HTTP."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress

import h2.config
import h2.connection
import h2.events
import uvicorn
from hypercorn.asyncio import serve
from hypercorn.config import Config
from programs import LOOPBACK, eventually, free_port, listens

_LIMIT = 30.0
_READ = 1 << 16


class Uvicorn:
    """uvicorn with one of its HTTP implementations; `app` is served until `stop`."""

    def __init__(self, app, http):
        self.port = free_port()
        config = uvicorn.Config(
            app,
            host=LOOPBACK,
            port=self.port,
            http=http,
            ws="none",
            log_config=None,
            date_header=False,
            server_header=False,
            timeout_graceful_shutdown=2,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        eventually(lambda: listens(self.port), "uvicorn")

    def ask(self, name, request, leave_after=None):
        """Send a request over HTTP/1.1: every byte that came."""
        return ask_http1(self.port, name, request, leave_after)

    def stop(self):
        """End it."""
        self._server.should_exit = True
        self._thread.join(_LIMIT)


class Hypercorn:
    """hypercorn, asked in HTTP/2."""

    def __init__(self, app):
        self.port = free_port()
        config = Config()
        config.bind = [f"{LOOPBACK}:{self.port}"]
        config.include_date_header = config.include_server_header = False
        config.errorlog = config.accesslog = None
        config.keep_alive_timeout = 0.3  # after which it closes what an app has abandoned
        config.graceful_timeout = config.shutdown_timeout = 1
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._serving = serve(app, config, shutdown_trigger=self._stop.wait)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        eventually(lambda: listens(self.port), "hypercorn")

    def _run(self):
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serving)
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def ask(self, name, request, leave_after=None):
        """Send a request over HTTP/2: its frames as the client understood them."""
        return ask_http2(self.port, name, request, leave_after)

    def stop(self):
        """End it."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_LIMIT)


def _connect(port):
    connection = socket.create_connection((LOOPBACK, port), _LIMIT)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def ask_http1(port, name, request, leave_after):
    """All bytes of the answer, or the first `leave_after` and then the client is gone."""
    method, path, headers, body = request
    chunked = any(key == "transfer-encoding" for key, _ in headers)
    length = [] if chunked or not body else [("content-length", str(len(body)))]
    sent = body if not chunked else b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    pairs = [("host", "zoo"), ("x-name", name), ("connection", "close"), *headers, *length]
    lines = [f"{method} {path} HTTP/1.1", *(f"{key}: {value}" for key, value in pairs), "", ""]
    with _connect(port) as connection:
        connection.sendall("\r\n".join(lines).encode() + sent)
        return _read(connection, leave_after)


def _read(connection, leave_after):
    got = b""
    while leave_after is None or len(got) < leave_after:
        with suppress(ConnectionResetError):
            if data := connection.recv(_READ):
                got += data
                continue
        break
    return got if leave_after is None else got[:leave_after]


def ask_http2(port, name, request, leave_after):
    """Status and headers in order, data, trailers and end of one stream."""
    method, path, headers, body = request
    pairs = [(":method", method), (":path", path), (":scheme", "http"), (":authority", "zoo")]
    kept = [(k, v) for k, v in headers if k not in {"transfer-encoding", "expect"}]
    pairs += [("x-name", name), *kept]
    talk = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="latin-1"))
    talk.initiate_connection()
    talk.increment_flow_control_window(1 << 24)
    talk.send_headers(1, pairs, end_stream=not body)
    talk.increment_flow_control_window(1 << 24, stream_id=1)
    if body:
        talk.send_data(1, body, end_stream=True)
    answer = {"headers": [], "data": b"", "trailers": [], "end": None}
    with _connect(port) as connection:
        connection.sendall(talk.data_to_send())
        while answer["end"] is None and (leave_after is None or len(answer["data"]) < leave_after):
            received = connection.recv(_READ)
            if not received:
                answer["end"] = "closed"
            for event in talk.receive_data(received):
                _understand(event, answer)
            connection.sendall(talk.data_to_send())
        if answer["end"] is None:
            talk.reset_stream(1)
            connection.sendall(talk.data_to_send())
    if leave_after is not None:
        answer["data"] = answer["data"][:leave_after]
        del answer["end"]
    return answer


def _understand(event, answer):
    if isinstance(event, h2.events.ResponseReceived):
        answer["headers"] = event.headers
    elif isinstance(event, h2.events.DataReceived):
        answer["data"] += event.data
    elif isinstance(event, h2.events.TrailersReceived):
        answer["trailers"] = event.headers
    elif isinstance(event, h2.events.StreamEnded):
        answer["end"] = "ended"
    elif isinstance(event, h2.events.StreamReset):
        answer["end"] = f"reset {event.error_code}"
