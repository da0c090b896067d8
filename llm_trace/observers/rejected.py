"""What did not arrive of an export that looks like a success: rejected in part, or sent elsewhere.

The exporters do not look at the answer, so it is read beside them: over HTTP by the session that
they are given, over gRPC by a stub around theirs.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, Final

from llm_trace.core import faults

_CREDENTIALS: Final = (
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER",
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_{}_CREDENTIAL_PROVIDER",
)
"""Variables by which the exporter makes a session of its own; that one is left alone."""
_REDIRECTS: Final = range(300, 400)
"""Statuses that some versions of the exporter take for a success."""
_ASKED_BY_GET: Final = frozenset({301, 302, 303})
"""Those after which the others, which follow, ask without what was to be exported."""
_MAX_ANSWER: Final = 64 * 1024
_MAX_WHY: Final = 200

_said: list[str] = []


def listening_session() -> Any:
    """A session for an exporter of spans over HTTP that counts rejected ones; None: its own."""
    session = strict_session("TRACES")
    if session is not None:
        session.hooks["response"].append(_heard)
    return session


def strict_session(signal: str) -> Any:
    """A session for an exporter over HTTP to which a redirect is no success; None: its own."""
    if any(os.environ.get(name.format(signal)) for name in _CREDENTIALS):
        return None
    try:
        requests = import_module("requests")
    except ImportError:  # a version of the exporter that posts by another library
        return None
    session = requests.Session()
    ask = session.request

    def request(*args: Any, **options: Any) -> Any:
        response = ask(*args, **options)
        if response.status_code in _REDIRECTS or any(
            each.status_code in _ASKED_BY_GET for each in response.history
        ):
            raise requests.HTTPError(
                "the endpoint points elsewhere, and an export does not follow: set its address"
            )
        return response

    session.request = request
    return session


def listen(exporter: Any) -> None:
    """Count the rejected spans of an exporter over gRPC, also after it has connected anew."""
    stub, client = getattr(exporter, "_stub", None), getattr(exporter, "_client", None)
    if stub is None or client is None:  # another version's insides: nothing is counted then
        return
    exporter._stub = lambda channel: _ListeningStub(stub(channel))  # noqa: SLF001
    exporter._client = _ListeningStub(client)  # noqa: SLF001 - there is no public way


class _ListeningStub:
    """A stub whose answers are looked at."""

    def __init__(self, stub: Any) -> None:
        self._stub = stub

    def Export(self, **call: Any) -> Any:  # noqa: N802 - the service's name
        response = self._stub.Export(**call)
        _count(response)
        return response


def _heard(response: Any, **_options: object) -> None:
    """Look at one answer over HTTP; whatever is wrong with it, the export was a success."""
    kind = response.headers.get("content-type", "")
    if not response.ok or "protobuf" not in kind or len(response.content) > _MAX_ANSWER:
        return
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2  # noqa: PLC0415

    try:
        answer = trace_service_pb2.ExportTraceServiceResponse.FromString(response.content)
    except Exception:  # noqa: BLE001 - protobuf's own error; and no answer is worth one of ours
        return
    _count(answer)


def _count(response: Any) -> None:
    told = response.partial_success
    if told.rejected_spans <= 0:
        return
    faults.spans["rejected"] += told.rejected_spans
    why = "".join(x if x.isprintable() else "?" for x in told.error_message[:_MAX_WHY])
    if not _said:  # once a process: what is counted need not be repeated
        _said.append(why)
        faults.log().warning(
            "llm_trace: the collector rejected %d spans: %s. Counted in "
            "llm_trace_spans_dropped_total; logged once.",
            *(told.rejected_spans, why or "it did not say why"),
        )
