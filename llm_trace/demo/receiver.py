"""A real OTLP/HTTP receiver in a thread: the app and the engine export to it as to any backend.

While load runs it only keeps the bodies; they are decoded when somebody asks, so that reading
telemetry does not disturb the clock of the client in the same process.
"""

from __future__ import annotations

import gzip
import threading
import zlib
from collections import deque
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final

from google.protobuf.json_format import (  # type: ignore[import-untyped, unused-ignore]
    MessageToDict,
)
from google.protobuf.message import DecodeError  # type: ignore[import-untyped, unused-ignore]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from llm_trace.demo.ports import LOOPBACK
from llm_trace.demo.process import wait_for
from llm_trace.traces.otlp import spans_of
from llm_trace.traces.spans import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from typing_extensions import Self

TRACES_PATH: Final = "/v1/traces"
_ACCEPTED: Final = (TRACES_PATH, "/v1/metrics", "/v1/logs")
_MAX_BODY: Final = 8 << 20
_MAX_BODIES: Final = 4096
_MAX_TRACES: Final = 4096
_MAX_SPANS: Final = 512
"""Of one trace."""


class Receiver:
    """Bounded spans by trace id; a context manager that serves while it is entered."""

    def __init__(self, port: int = 0) -> None:
        self.dropped = 0
        """Bodies or spans refused by a bound or unreadable."""
        self._bodies: deque[bytes] = deque()
        self._traces: dict[str, list[Span]] = {}
        self._lock = threading.Lock()
        self._server = _Server((LOOPBACK, port), self._keep)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def endpoint(self) -> str:
        """What `OTEL_EXPORTER_OTLP_ENDPOINT` is to be."""
        return f"http://{LOOPBACK}:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def spans(self, trace_id: str) -> list[Span]:
        """Return what has come of a trace so far."""
        with self._lock:
            self._decode()
            return list(self._traces.get(trace_id, ()))

    def wait(
        self, trace_ids: Iterable[str], complete: Callable[[list[Span]], bool], seconds: float
    ) -> bool:
        """Wait until every trace is complete; False when the time is over first."""
        missing = list(trace_ids)

        def arrived() -> bool:
            missing[:] = [one for one in missing if not complete(self.spans(one))]
            return not missing

        return wait_for(arrived, seconds)

    def _keep(self, body: bytes) -> None:
        with self._lock:
            if len(self._bodies) < _MAX_BODIES:
                self._bodies.append(body)
            else:
                self.dropped += 1

    def _decode(self) -> None:
        while self._bodies:
            try:
                spans = list(_decoded(self._bodies.popleft()))
            except DecodeError:
                self.dropped += 1
                continue
            for span in spans:
                self.dropped += not self._file(span)

    def _file(self, span: Span | None) -> bool:
        """Keep it; False where there is none, or no room."""
        if span is None:
            return False
        if span.trace_id not in self._traces and len(self._traces) >= _MAX_TRACES:
            return False
        spans = self._traces.setdefault(span.trace_id, [])
        if len(spans) >= _MAX_SPANS:
            return False
        spans.append(span)
        return True


def _decoded(body: bytes) -> Iterator[Span | None]:
    return spans_of(MessageToDict(ExportTraceServiceRequest.FromString(body)))


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], keep: Callable[[bytes], None]) -> None:
        super().__init__(address, _Handler)
        self.keep = keep


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_POST(self) -> None:
        """Take one export."""
        length = int(self.headers.get("content-length") or 0)
        if length > _MAX_BODY:
            self.close_connection = True
            self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        body = self.rfile.read(length)
        if self.path not in _ACCEPTED:
            self._answer(HTTPStatus.NOT_FOUND)
            return
        self._take(body)

    def _take(self, body: bytes) -> None:
        try:
            plain = gzip.decompress(body) if self.headers.get("content-encoding") else body
        except (OSError, EOFError, zlib.error):
            self._answer(HTTPStatus.BAD_REQUEST)
            return
        if self.path == TRACES_PATH:
            self.server.keep(plain)
        self._answer(HTTPStatus.OK)

    def _answer(self, status: HTTPStatus) -> None:
        """Answer with an empty message: an empty protobuf says that all was accepted."""
        self.send_response(status)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Keep quiet."""
