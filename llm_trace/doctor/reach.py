"""Is there somebody at the OTLP endpoint, and do they speak what we would send?"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from llm_trace.doctor.finding import Finding
from llm_trace.doctor.rehearsal import rehearsal
from llm_trace.doctor.unanswered import SECONDS, Advice, Place, in_tls, unanswered
from llm_trace.errors import SettingsError
from llm_trace.observers.endpoint import GRPC_PORT, HTTP_PORT, Endpoint, resolve, switched_off
from llm_trace.observers.variables import Signal, variable

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
"""What a gRPC client says first, with an empty SETTINGS frame."""
_SETTINGS_FRAME: Final = 4
_OTHER: Final = "OTEL_EXPORTER_OTLP_PROTOCOL"
_UNANSWERED: Final = Advice(
    nobody="Is the collector up, and is that its name from here? In a container localhost is the "
    "container itself.",
    untrusted="Use a name that is in it, and give the CA that signed it in "
    "OTEL_EXPORTER_OTLP_CERTIFICATE.",
    no_http=f"Set {_OTHER}=grpc for a gRPC receiver, or use the HTTP port {HTTP_PORT}.",
)


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
        yield _nowhere(check, signal, switched_off(signal, environ))
        return
    yield Finding(check, "ok", f"goes to {found.shown} by {found.protocol}")
    yield from rehearsal(check, signal, found)
    yield from _proxied(check, found)
    yield _knock(check, signal, found, environ)


def _nowhere(check: str, signal: Signal, off: str | None) -> Finding:
    if off is not None:
        return Finding(check, "note", f"{off}: they are not sent")
    if signal == "metrics":
        return Finding(check, "note", "no endpoint: metrics are on /metrics only")
    return Finding(
        check,
        "fault",
        "no endpoint is set: no spans leave, unless the app gives otlp_endpoint or has a provider "
        "of its own",
        "Set OTEL_EXPORTER_OTLP_ENDPOINT, such as http://collector:4317.",
    )


def _proxied(check: str, found: Endpoint) -> Iterator[Finding]:
    """Both kinds of exporters go by the proxy of the environment; a knock here does not."""
    host = urlsplit(found.url).hostname or ""
    named = _proxies_of_grpc() if found.protocol == "grpc" else _proxies_of_http(found.url)
    if named and not proxy_bypass(host):
        yield Finding(
            check,
            "warning",
            f"{named} is set, so exports go by that proxy, which was not tried",
            f"Add {host} to no_proxy, unless the proxy is meant to carry them.",
        )


def _proxies_of_grpc() -> str:
    """In the order in which gRPC looks, whatever the scheme; it knows no capitals."""
    names = ("grpc_proxy", "https_proxy", "http_proxy")
    return next((name for name in names if os.environ.get(name)), "")


def _proxies_of_http(url: str) -> str:
    scheme = urlsplit(url).scheme
    return f"{scheme}_proxy" if getproxies_environment().get(scheme) else ""


def _knock(check: str, signal: Signal, found: Endpoint, environ: Mapping[str, str]) -> Finding:
    parts = urlsplit(found.url)
    tls = parts.scheme == "https"
    place = Place(parts.hostname or "", parts.port or _PORTS[found.protocol, tls], tls)
    try:
        context = _trusting(signal, environ)
    except (OSError, ValueError) as fault:  # an SSLError is an OSError
        return Finding(
            check,
            "fault",
            f"a file of the certificates cannot be used: {str(fault)[:120]}",
            "OTEL_EXPORTER_OTLP_CERTIFICATE, _CLIENT_CERTIFICATE and _CLIENT_KEY name PEM files "
            "that the server may read.",
        )
    try:
        if found.protocol == "grpc":
            return _knock_grpc(check, place, context)
        path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path
        return _knock_http(check, signal, place, context, path, found.headers)
    except (OSError, HTTPException, ValueError) as fault:
        return unanswered(check, place, fault, _UNANSWERED)


_PORTS: Final = {
    ("grpc", False): GRPC_PORT,
    ("grpc", True): 443,
    ("http/protobuf", False): 80,
    ("http/protobuf", True): 443,
}
"""Where an address without a port leads."""


def _trusting(signal: Signal, environ: Mapping[str, str]) -> ssl.SSLContext:
    """The trust that the exporters have by their variables.

    Raises:
        OSError: A file is missing or holds no certificate.
    """
    context = ssl.create_default_context(cafile=variable(signal, "CERTIFICATE", environ) or None)
    if own := variable(signal, "CLIENT_CERTIFICATE", environ):
        context.load_cert_chain(own, variable(signal, "CLIENT_KEY", environ) or None)
    return context


def _knock_grpc(check: str, place: Place, context: ssl.SSLContext) -> Finding:
    """Say hello as gRPC does; a server of it answers with its settings."""
    with socket.create_connection((place.host, place.port), SECONDS) as plain:
        talk: socket.socket = plain
        if place.tls:
            context.set_alpn_protocols(["h2"])
            talk = context.wrap_socket(plain, server_hostname=place.host)
        with talk:
            talk.settimeout(SECONDS)
            talk.sendall(_PREFACE)
            answer = talk.recv(9)
    if len(answer) >= _SETTINGS_FRAME and answer[3] == _SETTINGS_FRAME:
        return Finding(check, "ok", "a gRPC server answers there")
    if not place.tls and place.speaks_tls():
        return in_tls(check, place)
    return Finding(
        check,
        "fault",
        f"what answers there is no gRPC server: it said {answer[:9]!r}",
        f"Set {_OTHER}=http/protobuf with port {HTTP_PORT}, or use the gRPC port {GRPC_PORT}.",
    )


def _knock_http(
    check: str,
    signal: Signal,
    place: Place,
    context: ssl.SSLContext,
    path: str,
    headers: Mapping[str, str],
) -> Finding:
    """Send an empty export, which every receiver takes."""
    connection = (
        HTTPSConnection(place.host, place.port, timeout=SECONDS, context=context)
        if place.tls
        else HTTPConnection(place.host, place.port, timeout=SECONDS)
    )
    try:
        sent = {"content-type": "application/x-protobuf", **headers}
        connection.request("POST", path or "/", body=b"", headers=sent)
        status = connection.getresponse().status
    finally:
        connection.close()
    return _answered(check, signal, status)


_ADVICE: Final[Mapping[int, str]] = {
    400: "A port of TLS answers so to http://; else look at the receiver's log.",
    401: "Give the key in OTEL_EXPORTER_OTLP_HEADERS.",
    403: "The key in OTEL_EXPORTER_OTLP_HEADERS may not write there.",
    404: "Is the path right? OTEL_EXPORTER_OTLP_ENDPOINT gets /v1/{signal} added; "
    "OTEL_EXPORTER_OTLP_{SIGNAL}_ENDPOINT is taken as it is.",
    405: "Is the path right, and does an OTLP receiver listen there?",
}
_TAKEN: Final = range(200, 300)


def _answered(check: str, signal: Signal, status: int) -> Finding:
    if status in _TAKEN:
        return Finding(check, "ok", "an empty export was taken there")
    advice = _ADVICE.get(status, "Look at the receiver's log.")
    fix = advice.format(signal=signal, SIGNAL=signal.upper())
    return Finding(check, "fault", f"an empty export was answered with {status}", fix)
