"""Where a trace is read from: a file, standard input, or an HTTP API, each with a bound."""

from __future__ import annotations

import re
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from types import MappingProxyType
from typing import Final

from llm_trace.address import http_url, is_http
from llm_trace.traces.spans import TraceError, whole_id

MAX_BYTES: Final = 128 << 20
SECONDS: Final = 10
_NO_RECORDER: Final = (
    " The flight recorder is at /debug/llm_trace, for callers on the server's own machine, where "
    "LLM_TRACE_FLIGHT_RECORDER is set."
)
_NO_TRACE: Final = " It has no such trace: was it sampled, and has it arrived by now?"
_NO_KEY: Final = " It wants a key: name a variable with --token-env, or give a --header."
_NONE: Final[Mapping[str, str]] = MappingProxyType({})
TRACE_ID: Final = re.compile(r"[0-9a-fA-F]{16,32}")
"""Short where it is of 64 bits, or where Jaeger leaves out leading zeros."""


def text_of(trace: str, api: str | None = None, headers: Mapping[str, str] = _NONE) -> str:
    """The JSON behind `trace`.

    Args:
        trace: A file, `-`, a URL, or a trace id.
        api: Base URL of Tempo or Jaeger, for a trace id; both answer at the same path.
        headers: What a server is asked with; they may hold a key, and follow no redirect.

    Raises:
        TraceError: It cannot be read.
    """
    if trace == "-":
        return _decoded(sys.stdin.buffer.read(MAX_BYTES + 1), "standard input")
    if is_http(trace):
        return _fetched(trace, headers, _NO_RECORDER)
    if TRACE_ID.fullmatch(trace) and not _is_file(trace):
        if api is None:
            raise TraceError(
                f"{trace} looks like a trace id: say where it is, such as "
                "--api http://tempo:3200 or --api http://jaeger:16686."
            )
        return _fetched(f"{api.rstrip('/')}/api/traces/{whole_id(trace)}", headers, _NO_TRACE)
    return _from_file(trace)


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):
        return False


def _from_file(name: str) -> str:
    try:
        with Path(name).open("rb") as file:
            return _decoded(file.read(MAX_BYTES + 1), name)
    except (OSError, ValueError) as fault:
        raise TraceError(f"{name[:200]!r} cannot be read: {_why(fault)}.") from None


def _fetched(url: str, headers: Mapping[str, str], missing: str) -> str:
    http_url(url, such_as="http://tempo:3200", key_option="--token-env")
    request = urllib.request.Request(url, headers={"accept": "application/json"})  # noqa: S310 - checked above
    for name, value in headers.items():
        request.add_unredirected_header(name, value)
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310 - likewise
            return _decoded(answer.read(MAX_BYTES + 1), url)
    except urllib.error.HTTPError as fault:
        hints: dict[int, str] = {HTTPStatus.NOT_FOUND: missing, HTTPStatus.UNAUTHORIZED: _NO_KEY}
        hint = hints.get(fault.code, "")
        raise TraceError(f"{url[:200]} answered {fault.code} {fault.reason}.{hint}") from None
    except (OSError, ValueError, HTTPException) as fault:
        raise TraceError(f"{url[:200]} cannot be read: {_why(fault)}.") from None


def _why(fault: Exception) -> str:
    reason = getattr(fault, "reason", None) or getattr(fault, "strerror", None) or fault
    return str(reason)[:200]


def _decoded(body: bytes, name: str) -> str:
    if len(body) > MAX_BYTES:
        raise TraceError(f"{name[:200]} is larger than {MAX_BYTES >> 20} MiB: ask for one trace.")
    return body.decode("utf-8-sig", "replace")
