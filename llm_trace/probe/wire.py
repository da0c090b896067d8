"""One request on a connection of its own, and when each step of it was done.

Bytes are only stamped and kept while it runs; they are read afterwards, so that reading does not
disturb the clock.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

from llm_trace.core.clock import SYSTEM
from llm_trace.probe.errors import ProbeError
from llm_trace.probe.target import MODELS, Question, Target

MOST_BYTES: Final = 1 << 26
"""Of one answer; what is longer is cut off."""

_READ: Final = 1 << 16
_LISTED: Final = 1 << 20

_now: Final = SYSTEM.monotonic_ns


@dataclass
class Exchange:
    """One request and its answer; stamps in monotonic ns, 0 for what was not reached."""

    started: int = 0
    connected: int = 0
    secured: int = 0
    """TLS is up; 0 without TLS."""
    asked: int = 0
    """The request is about to be written: the server may have it before `write` returns."""
    head: int = 0
    """Status and headers are here."""
    ended: int = 0
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    """By name in lower case."""
    arrivals: list[tuple[int, bytes]] = field(default_factory=list)
    """Parts of the body, in the order of their arrival."""
    broken: str | None = None
    """Why the answer has no end."""


def exchange(target: Target, asked: Question) -> Exchange:
    """Ask, and stamp the answer to its end.

    Raises:
        ProbeError: Nobody answers there.
    """
    done = Exchange(started=_now())
    connection = _connected(target, done)
    with closing(connection):
        try:
            done.asked = _now()
            connection.request("POST", target.path, asked.body, dict(asked.headers))
            _read(connection, done)
        except TimeoutError:
            done.broken = "timeout"
        except (OSError, http.client.HTTPException, ValueError) as fault:
            done.broken = type(fault).__name__
        done.ended = _now()
    return done


def _read(connection: http.client.HTTPConnection, done: Exchange) -> None:
    response = connection.getresponse()
    done.head = _now()
    done.status = response.status
    done.headers = {name.lower(): value for name, value in response.getheaders()}
    kept = 0
    while data := response.read1(_READ):
        done.arrivals.append((_now(), data))
        kept += len(data)
        if kept > MOST_BYTES:
            raise ValueError("too long")
    if response.length:  # it said more than it sent
        done.broken = "IncompleteRead"


def _connected(target: Target, done: Exchange) -> http.client.HTTPConnection:
    """A connection of ours, so that TCP and TLS can be told apart."""
    connection = http.client.HTTPConnection(target.host, target.port, timeout=target.timeout)
    try:
        plain = socket.create_connection((target.host, target.port), target.timeout)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        done.connected = _now()
        if target.secure:
            context = ssl.create_default_context()
            plain = context.wrap_socket(plain, server_hostname=target.host)
            done.secured = _now()
    except (OSError, UnicodeError) as fault:
        why = str(fault) or type(fault).__name__
        raise ProbeError(f"{target.url} does not answer: {why}.") from None
    connection.sock = plain
    return connection


def first_model(target: Target) -> str | None:
    """The first model that the server lists; None where it lists none."""
    with closing(_connected(target, Exchange())) as connection:
        try:
            path = target.path.partition("?")[0].rpartition("/v1/")[0] + MODELS
            connection.request("GET", path, headers=dict(target.headers))
            document = json.loads(connection.getresponse().read(_LISTED))
            return str(document["data"][0]["id"])
        except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError):
            return None
