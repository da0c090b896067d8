"""Is there somebody at the OTLP endpoint, and do they speak what we would send?"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final
from urllib.parse import SplitResult, urlsplit

from llm_trace.doctor.finding import Finding
from llm_trace.errors import SettingsError
from llm_trace.observers.endpoint import GRPC_PORT, HTTP_PORT, Endpoint, Signal, resolve

SECONDS: Final = 5.0
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
"""What a gRPC client says first, with an empty SETTINGS frame."""
_SETTINGS_FRAME: Final = 4
_OTHER: Final = "OTEL_EXPORTER_OTLP_PROTOCOL"


def endpoint(signal: Signal, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Where `signal` goes, and whether it would be taken there."""
    check = f"OTLP {signal}"
    try:
        found = resolve(
            signal,
            environ,
            endpoint=environ.get("LLM_TRACE_OTLP_ENDPOINT") or None,
            protocol=environ.get("LLM_TRACE_OTLP_PROTOCOL") or None,
        )
    except SettingsError as fault:
        yield Finding(check, "fault", str(fault), "Correct that variable.")
        return
    if found is None:
        yield _nowhere(check, signal)
        return
    yield Finding(check, "ok", f"goes to {found.shown} by {found.protocol}")
    yield from _knock(check, found)


def _nowhere(check: str, signal: Signal) -> Finding:
    if signal == "metrics":
        return Finding(check, "note", "no endpoint: metrics are on /metrics only")
    return Finding(
        check,
        "fault",
        "no endpoint is set: no spans leave, unless the app has a provider of its own",
        "Set OTEL_EXPORTER_OTLP_ENDPOINT, such as http://collector:4317.",
    )


def _knock(check: str, found: Endpoint) -> Iterator[Finding]:
    parts = urlsplit(found.url)
    try:
        if found.protocol == "grpc":
            yield _knock_grpc(check, parts)
        else:
            yield _knock_http(check, parts, found.headers)
    except (OSError, HTTPException, ValueError) as fault:
        where = f"{parts.hostname}:{_port(parts)}"
        yield Finding(
            check,
            "fault",
            f"nobody answers at {where}: {str(fault)[:120] or type(fault).__name__}",
            "Is the collector up, and is that its name from here? In a container localhost is the "
            "container itself.",
        )


def _port(parts: SplitResult) -> int:
    return parts.port or (443 if parts.scheme == "https" else GRPC_PORT)


def _knock_grpc(check: str, parts: SplitResult) -> Finding:
    """Say hello as gRPC does; a server of it answers with its settings."""
    with socket.create_connection((parts.hostname or "", _port(parts)), SECONDS) as plain:
        talk: socket.socket = plain
        if parts.scheme == "https":
            context = ssl.create_default_context()
            context.set_alpn_protocols(["h2"])
            talk = context.wrap_socket(plain, server_hostname=parts.hostname)
        with talk:
            talk.settimeout(SECONDS)
            talk.sendall(_PREFACE)
            answer = talk.recv(9)
    if len(answer) >= _SETTINGS_FRAME and answer[3] == _SETTINGS_FRAME:
        return Finding(check, "ok", "a gRPC server answers there")
    return Finding(
        check,
        "fault",
        f"what answers there is no gRPC server: it said {answer[:9]!r}",
        f"Set {_OTHER}=http/protobuf with port {HTTP_PORT}, or use the gRPC port {GRPC_PORT}.",
    )


def _knock_http(check: str, parts: SplitResult, headers: Mapping[str, str]) -> Finding:
    """Send an empty export, which every receiver takes."""
    make = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = make(parts.hostname or "", parts.port, timeout=SECONDS)
    try:
        sent = {"content-type": "application/x-protobuf", **headers}
        connection.request("POST", parts.path or "/", body=b"", headers=sent)
        status = connection.getresponse().status
    finally:
        connection.close()
    return _answered(check, status)


_ADVICE: Final[Mapping[int, str]] = {
    401: "Give the key in OTEL_EXPORTER_OTLP_HEADERS.",
    403: "The key in OTEL_EXPORTER_OTLP_HEADERS may not write there.",
    404: "Is the path right? OTEL_EXPORTER_OTLP_ENDPOINT gets /v1/traces added; "
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is taken as it is.",
    405: "Is the path right, and does an OTLP receiver listen there?",
}
_TAKEN: Final = range(200, 300)


def _answered(check: str, status: int) -> Finding:
    if status in _TAKEN:
        return Finding(check, "ok", "an empty export was taken there")
    advice = _ADVICE.get(status, "Look at the receiver's log.")
    return Finding(check, "fault", f"an empty export was answered with {status}", advice)
