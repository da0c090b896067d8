"""Collectors that misbehave, over both transports, each in one way."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as trace_grpc
from programs import LOOPBACK

DELAY = 1.0
"""Seconds that a slow one takes: far more than any request here."""
REJECTED = 2
"""Spans that a picky one rejects of each export."""


class _Collector:
    """What both have in common: a context manager that serves while it is entered."""

    def __init__(self, mood):
        self.mood = mood
        self.exports = []
        self._go = threading.Event()

    def take(self, request):
        """Take an export as the mood has it; the answer, or None to refuse it."""
        self.exports.append(
            sum(len(s.spans) for r in request.resource_spans for s in r.scope_spans)
        )
        if self.mood in {"slow", "hanging"}:
            self._go.wait(DELAY if self.mood == "slow" else 600)
        if self.mood == "refusing":
            return None
        answer = pb.ExportTraceServiceResponse()
        if self.mood == "picky":
            answer.partial_success.rejected_spans = REJECTED
            answer.partial_success.error_message = "attributes too long"
        return answer

    def __exit__(self, *_):
        self._go.set()
        self.stop()


class OverGrpc(_Collector, trace_grpc.TraceServiceServicer):
    """A gRPC service."""

    protocol = "grpc"

    def __enter__(self):
        self._server = grpc.server(ThreadPoolExecutor(8))
        trace_grpc.add_TraceServiceServicer_to_server(self, self._server)
        port = self._server.add_insecure_port(f"{LOOPBACK}:0")
        self.endpoint = f"http://{LOOPBACK}:{port}"
        self._server.start()
        return self

    def stop(self):
        """End it."""
        self._server.stop(None).wait()

    def Export(self, request, context):  # noqa: N802 - the service's name
        """Answer one export."""
        answer = self.take(request)
        if answer is None:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "not you")
        return answer


class OverHttp(_Collector):
    """The same over HTTP."""

    protocol = "http/protobuf"

    def __enter__(self):
        collector = self

        class Handler(BaseHTTPRequestHandler):
            """Answers one export."""

            def do_POST(self):
                """Take what was posted."""
                body = self.rfile.read(int(self.headers["content-length"]))
                answer = b""
                if "traces" in self.path:
                    taken = collector.take(pb.ExportTraceServiceRequest.FromString(body))
                    if taken is None:
                        self.send_error(403)
                        return
                    answer = taken.SerializeToString()
                with suppress(OSError):  # the exporter has given up
                    self._answer(answer)

            def _answer(self, answer):
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                """Say nothing."""

        self._server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://{LOOPBACK}:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def stop(self):
        """End it."""
        self._server.shutdown()
        self._server.server_close()
