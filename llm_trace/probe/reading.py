"""What one exchange came to: the client's numbers, the server's, and the difference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from llm_trace import semconv as s
from llm_trace.asgi.sse import Seen, TokenDetector, framing_of
from llm_trace.core import inband
from llm_trace.probe.pace import Pace, pace_of
from llm_trace.probe.wire import Exchange

_OK: Final = 200
_SHOWN: Final = 200


@dataclass
class Reading:
    """One answer, read; durations in ns since it was asked, None for what is not known."""

    trace_id: str
    connect: int
    """DNS and TCP."""
    tls: int | None
    status: int
    failure: str | None = None
    """Why it is no answer; None for one."""
    head: int | None = None
    ttft: int | None = None
    total: int | None = None
    pace: Pace = field(default_factory=lambda: pace_of((), 0, None))
    first: Mapping[str, int] = field(default_factory=dict)
    """The server's own phases up to the first token, ns."""
    whole: Mapping[str, int] = field(default_factory=dict)
    """And of the whole answer."""

    @property
    def server_ttft(self) -> int | None:
        """From the arrival at the server to its first token."""
        return sum(self.first.values()) if self.first else None

    @property
    def server_total(self) -> int | None:
        """From the arrival at the server to its end, as far as it could be told in band."""
        return sum(self.whole.values()) if self.whole else None

    @property
    def network_ttft(self) -> int | None:
        """What the client waited for its first token beyond the server."""
        return _beyond(self.ttft, self.server_ttft)

    @property
    def network_total(self) -> int | None:
        """What the client waited for the whole answer beyond the server."""
        return _beyond(self.total, self.server_total)


def _beyond(client: int | None, server: int | None) -> int | None:
    return None if client is None or server is None else client - server


def read(done: Exchange, trace_id: str) -> Reading:
    """Read an exchange to its end."""
    reading = Reading(
        trace_id,
        done.connected - done.started,
        done.secured - done.connected if done.secured else None,
        done.status,
        _failure(done),
    )
    if not done.head:
        return reading
    reading.head = done.head - done.asked
    if done.broken is None:
        reading.total = (done.arrivals[-1][0] if done.arrivals else done.head) - done.asked
    if reading.failure is None:
        _read_body(done, reading)
    return reading


def _failure(done: Exchange) -> str | None:
    if done.broken is not None:
        return f"broken off: {done.broken}"
    if done.status == _OK:
        return None
    said = b"".join(data for _, data in done.arrivals)[:_SHOWN].decode("utf-8", "replace")
    return f"status {done.status}: {' '.join(said.split())}".rstrip(": ")


def _read_body(done: Exchange, reading: Reading) -> None:
    framing = framing_of(done.headers.get("content-type", ""))
    if framing is None or "content-encoding" in done.headers:
        told = inband.read_server_timing(done.headers.get(inband.SERVER_TIMING, ""))
        reading.whole = told.phases if told is not None else {}
        return
    if framing == "sse" and done.headers.get(inband.HEADER) == inband.ASKED:
        _read_ledger(b"".join(data for _, data in done.arrivals), reading)
    arrived, failed = _tokens(done, framing)
    if failed:
        reading.failure = f"an error in the stream: {failed}"
    if arrived:
        reading.ttft = arrived[0] - done.asked
        reading.pace = pace_of(arrived, reading.ttft, reading.whole.get(s.DECODE))


def _tokens(done: Exchange, framing: str) -> tuple[list[int], str | None]:
    """When each event with a token arrived, and what went wrong inside the stream."""
    detector = TokenDetector(framing)
    arrived: list[int] = []
    bits = counted = 0
    for at, data in done.arrivals:
        bits |= detector.feed(data)
        arrived += [at] * (detector.facts.token_events - counted)
        counted = detector.facts.token_events
    bits |= detector.close()
    return arrived, (detector.facts.error_type or "unnamed") if bits & Seen.ERROR else None


def _read_ledger(body: bytes, reading: Reading) -> None:
    for told in inband.read_stream(body):
        if told.at == inband.FIRST_TOKEN:
            reading.first = told.phases
        else:
            reading.whole = told.phases
