"""Where OTLP goes, from keywords and the standard variables; contradictions fail at start.

Knows the specification's rules for `OTEL_EXPORTER_OTLP_*`; does not know exporters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Final
from urllib.parse import urlsplit

from llm_trace.errors import SettingsError
from llm_trace.observers.variables import (
    GENERIC,
    Protocol,
    Signal,
    check_files,
    check_numbers,
    compression,
    headers,
    variable,
)

PROTOCOLS: Final = ("grpc", "http/protobuf")
GRPC_PORT: Final = 4317
HTTP_PORT: Final = 4318

_CREDENTIALS: Final = re.compile(r"^([^/]*//)?[^/@]*(?:@[^/@]*)*@")

_QUERY: Final = re.compile(r"\?.+", re.DOTALL)

_OTLP: Final[Mapping[str, Protocol | None]] = {
    "otlp": None,
    "otlp_proto_grpc": "grpc",
    "otlp_proto_http": "http/protobuf",
}
"""Names of OTLP in `OTEL_<SIGNAL>_EXPORTER`, and the protocol that Python's own name says."""


@dataclass(frozen=True)
class Endpoint:
    """One signal's destination, checked."""

    url: str
    protocol: Protocol
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Never shown: they may hold credentials."""
    compression: str | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it is without TLS: the scheme says so, whatever variables say beside it."""
        return urlsplit(self.url).scheme == "http"

    @property
    def shown(self) -> str:
        """The URL for a log, without the name and password that it may hold."""
        return without_credentials(self.url)


def without_credentials(url: str) -> str:
    """`url` without what stands before an @ of its authority, and without its query's words."""
    return _QUERY.sub("?***", _CREDENTIALS.sub(r"\1***@", url))


def resolve(
    signal: Signal,
    environ: Mapping[str, str],
    *,
    endpoint: str | None = None,
    protocol: str | None = None,
) -> Endpoint | None:
    """The endpoint of `signal`, or None where nobody configured one.

    Args:
        signal: `traces` or `metrics`.
        environ: The environment.
        endpoint: A keyword that beats the environment; the signal's path is added where missing.
        protocol: `grpc` or `http/protobuf`; beats the environment.

    Raises:
        SettingsError: Settings contradict each other or cannot work.
    """
    if switched_off(signal, environ) is not None:
        return None
    url, verbatim = _address(signal, environ, endpoint)
    if url is None:
        return None
    chosen = _protocol(signal, environ, protocol or _named(signal, environ), url)
    _check(url, chosen, environ, signal)
    if chosen == "grpc":
        url = _with_port(url)
    elif not verbatim:
        url = _with_path(url, f"/v1/{signal}")
    check_numbers(signal, chosen, environ)
    if _split(url).scheme == "https":
        check_files(signal, environ)
    return Endpoint(
        url, chosen, headers(signal, chosen, environ), compression(signal, chosen, environ)
    )


def switched_off(signal: Signal, environ: Mapping[str, str]) -> str | None:
    """The variable that keeps `signal` from being sent, with its value; None where none does.

    Raises:
        SettingsError: It names an exporter that is not ours.
    """
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return "OTEL_SDK_DISABLED=true"
    chooses, names = _exporters(signal, environ)
    strange = set(names) - {*_OTLP, "none", "prometheus"}
    if strange and strange - _of_the_sdk(signal):
        raise SettingsError(
            f"{chooses}={','.join(names)!r} cannot be used: llm_trace exports otlp. Use otlp or "
            "none, or configure another exporter on the app's own provider."
        )
    return f"{chooses}={','.join(names)}" if _OTLP.keys().isdisjoint(names) else None


def _exporters(signal: Signal, environ: Mapping[str, str]) -> tuple[str, list[str]]:
    """The variable that chooses exporters, and what it names."""
    chooses = f"OTEL_{signal.upper()}_EXPORTER"
    return chooses, [n.strip() for n in environ.get(chooses, "").split(",") if n.strip()] or [
        "otlp"
    ]


def _named(signal: Signal, environ: Mapping[str, str]) -> Protocol | None:
    """The protocol that the exporter's name says, if it does."""
    return next((_OTLP[name] for name in _exporters(signal, environ)[1] if name in _OTLP), None)


def _of_the_sdk(signal: Signal) -> set[str]:
    """Exporters of metrics that the SDK's own set-up knows: its business, ours are on /metrics.

    Spans would go nowhere where the app has no provider of its own; so there are none for them.
    """
    if signal == "traces":
        return set()
    return {point.name for point in entry_points(group="opentelemetry_metrics_exporter")}


def _address(
    signal: Signal, environ: Mapping[str, str], endpoint: str | None
) -> tuple[str | None, bool]:
    if endpoint is not None:
        return endpoint.strip(), False
    specific = environ.get(f"{GENERIC}{signal.upper()}_ENDPOINT", "").strip()
    if specific:
        return specific, True
    return environ.get(f"{GENERIC}ENDPOINT", "").strip() or None, False


def _protocol(signal: Signal, environ: Mapping[str, str], given: str | None, url: str) -> Protocol:
    text = given or variable(signal, "PROTOCOL", environ)
    if text in PROTOCOLS:
        return text  # type: ignore[return-value]
    if text:
        raise SettingsError(
            f"OTLP protocol {text!r} cannot be used: use {' or '.join(PROTOCOLS)} in "
            "OTEL_EXPORTER_OTLP_PROTOCOL or otlp_protocol."
        )
    parts = _split(url)
    is_http = parts.port == HTTP_PORT or parts.path.rstrip("/").endswith(f"/v1/{signal}")
    return "http/protobuf" if is_http else "grpc"


def _split(url: str):  # type: ignore[no-untyped-def]  # noqa: ANN202 - SplitResult, re-raised as ours
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - the port is only checked when it is read
    except ValueError as error:
        reason = "" if "@" in url else f": {error}"  # which quotes what it could not read
        raise SettingsError(
            f"OTLP endpoint {without_credentials(url)!r} is no URL{reason}."
        ) from error
    return parts


def _check(url: str, protocol: Protocol, environ: Mapping[str, str], signal: Signal) -> None:
    parts, shown = _split(url), without_credentials(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise SettingsError(
            f"OTLP endpoint {shown!r} cannot be used: begin it with http:// or https://, "
            "such as http://collector:4317."
        )
    insecure = variable(signal, "INSECURE", environ).lower() == "true"
    if parts.scheme == "https" and insecure:
        raise SettingsError(
            f"OTLP endpoint {shown!r} is https and OTEL_EXPORTER_OTLP_INSECURE is true: "
            "use http:// or drop the variable."
        )
    wrong = {"http/protobuf": GRPC_PORT, "grpc": HTTP_PORT}[protocol]
    if parts.port == wrong:
        other = PROTOCOLS[PROTOCOLS.index(protocol) - 1]
        raise SettingsError(
            f"OTLP endpoint {shown!r} has the port of {other} and the protocol is {protocol}: "
            "change OTEL_EXPORTER_OTLP_PROTOCOL or the port."
        )


def _with_port(url: str) -> str:
    """`url` with OTLP's own port where it names none: gRPC's would be 443, also without TLS."""
    parts = _split(url)
    if parts.scheme == "https" or parts.port is not None:
        return url
    return str(parts._replace(netloc=f"{parts.netloc.rstrip(':')}:{GRPC_PORT}").geturl())


def _with_path(url: str, path: str) -> str:
    parts = _split(url)
    base = parts.path.rstrip("/")
    return str(parts._replace(path=base if base.endswith(path) else base + path).geturl())
