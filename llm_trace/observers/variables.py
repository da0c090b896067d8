"""The standard variables of OTLP, by signal; what an exporter would refuse fails at start.

Exporters are made in each process that serves, where a fault is contained: all that a variable that
cannot be used did there was a line in the log, and nothing that arrived.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final, Literal
from urllib.parse import unquote

from llm_trace.errors import SettingsError

Signal = Literal["traces", "metrics"]
Protocol = Literal["grpc", "http/protobuf"]

GENERIC: Final = "OTEL_EXPORTER_OTLP_"

_COMPRESSIONS: Final[Mapping[Protocol, tuple[str, ...]]] = {
    "grpc": ("gzip", "none"),
    "http/protobuf": ("gzip", "deflate", "none"),
}
_ABOVE_ZERO: Final[Mapping[Signal, tuple[str, ...]]] = {
    "traces": (
        "OTEL_BSP_SCHEDULE_DELAY",
        "OTEL_BSP_MAX_QUEUE_SIZE",
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
    ),
    "metrics": ("OTEL_METRIC_EXPORT_INTERVAL",),
}
"""Numbers that the SDK refuses from 0 down; of what is no number it takes its default."""

_NAME: Final[Mapping[Protocol, re.Pattern[str]]] = {
    "grpc": re.compile(r"[0-9a-z_.-]+"),
    "http/protobuf": re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+"),
}
_ENCODING: Final[Mapping[Protocol, str]] = {"grpc": "ascii", "http/protobuf": "latin-1"}
"""What the value of a header can be written in."""


def variable(signal: Signal, name: str, environ: Mapping[str, str]) -> str:
    """The signal's own variable, else the generic one; empty counts as unset."""
    specific = environ.get(f"{GENERIC}{signal.upper()}_{name}", "").strip()
    return specific or environ.get(f"{GENERIC}{name}", "").strip()


def compression(signal: Signal, protocol: Protocol, environ: Mapping[str, str]) -> str | None:
    """The compression that is asked for; None: none is.

    Raises:
        SettingsError: The protocol's exporter knows no such compression.
    """
    text = variable(signal, "COMPRESSION", environ).lower() or "none"
    if text not in _COMPRESSIONS[protocol]:
        raise SettingsError(
            f"OTEL_EXPORTER_OTLP_COMPRESSION={text!r} cannot be used over {protocol}: use "
            f"{' or '.join(_COMPRESSIONS[protocol])}."
        )
    return None if text == "none" else text


def check_numbers(signal: Signal, protocol: Protocol, environ: Mapping[str, str]) -> None:
    """Refuse numbers with which nothing of `signal` would arrive.

    An empty time limit is none, but for the exporters over gRPC, which fail at it.

    Raises:
        SettingsError: There is one.
    """
    for name in (f"{GENERIC}TIMEOUT", f"{GENERIC}{signal.upper()}_TIMEOUT"):
        text = environ.get(name)
        is_set = bool(text) or (text is not None and protocol == "grpc")
        if is_set and not (_number(text or "") or 0) > 0:
            raise _unusable(name, text or "", "seconds above 0")
    for name in _ABOVE_ZERO[signal]:
        number = _number(environ.get(name, ""))
        if number is not None and not number > 0:
            raise _unusable(name, environ[name], "a number of ms or of spans above 0")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _unusable(name: str, text: str, use: str) -> SettingsError:
    return SettingsError(f"{name}={text!r} cannot be used: use {use}, or drop the variable.")


def check_files(signal: Signal, environ: Mapping[str, str]) -> None:
    """Refuse certificates and keys that cannot be read: over TLS nothing would arrive.

    Raises:
        SettingsError: There is one.
    """
    for word in ("CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"):
        path = variable(signal, word, environ)
        if path and not os.access(path, os.R_OK):
            own = f"{GENERIC}{signal.upper()}_{word}"
            name = own if environ.get(own, "").strip() else f"{GENERIC}{word}"
            raise SettingsError(
                f"{name}={path!r} cannot be used: there is no file of that name that this process "
                "may read."
            )


def headers(signal: Signal, protocol: Protocol, environ: Mapping[str, str]) -> dict[str, str]:
    """The headers that exports carry.

    Raises:
        SettingsError: They cannot be read, or cannot be sent.
    """
    found = {}
    for pair in variable(signal, "HEADERS", environ).split(","):
        name, equals, value = pair.partition("=")
        if not pair.strip():
            continue
        if not equals or not name.strip():
            raise _no_headers(
                "every part between commas must be name=value; a comma inside a value is "
                "written %2C"
            )
        found[unquote(name.strip()).lower()] = unquote(value.strip())
    if not all(text.isprintable() for pair in found.items() for text in pair):
        raise _no_headers("a line break or another control character is in it, perhaps after a key")
    for name, value in found.items():
        if not (_NAME[protocol].fullmatch(name) and _can_be_sent(value, _ENCODING[protocol])):
            raise _no_headers(
                f"over {protocol} a name is letters, digits, - _ and ., and a value "
                f"{_ENCODING[protocol]}"
            )
    return found


def _can_be_sent(value: str, encoding: str) -> bool:
    try:
        value.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def _no_headers(why: str) -> SettingsError:
    return SettingsError(
        f"OTEL_EXPORTER_OTLP_HEADERS cannot be used: {why}. (The value is not shown.)"
    )
