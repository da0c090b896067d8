"""One streamed request over httpx, on the client's own clock.

Bytes are only stamped and kept while a request runs; they are read afterwards, by the detector that
the middleware uses, so that reading does not disturb the clock.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import httpx

from llm_trace.asgi.sse import Seen, TokenDetector, framing_of
from llm_trace.bench.sample import Sample
from llm_trace.core import inband
from llm_trace.core.clock import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_ANSWER: Final = 1 << 24
"""Bytes of one answer that are kept; more is a failure."""

_OK: Final = 200
_SHOWN: Final = 300
"""Bytes of a refusal that are kept."""
_now: Final = SYSTEM.monotonic_ns

Arrivals = list[tuple[int, bytes]]


class _Refused(Exception):  # noqa: N818 - it is a reason, and never leaves this module
    """The answer is no stream of tokens: why in a word or two, and how its body begins."""

    def __init__(self, reason: str, body: bytes = b"") -> None:
        super().__init__(reason)
        self.said = body[:_SHOWN].decode(errors="replace").strip() or None


async def ask(
    client: httpx.AsyncClient, url: str, body: bytes, headers: Mapping[str, str], patience: float
) -> Sample:
    """Send one request and read its stream to the end; whatever goes wrong is in the sample.

    Args:
        client: The pool of connections.
        url: Where to post.
        body: The request, encoded.
        headers: Beside those of JSON.
        patience: Seconds after which the request is given up.
    """
    arrivals: Arrivals = []
    sample = Sample(started=_now())
    try:
        framing = await asyncio.wait_for(_stream(client, url, body, headers, arrivals), patience)
        sample.outcome = "ok"
    except (asyncio.TimeoutError, httpx.TimeoutException):
        sample.outcome, sample.reason, framing = "cancelled", "timeout", "sse"
    except _Refused as fault:
        sample.reason, sample.said, framing = str(fault), fault.said, "sse"
    except (httpx.HTTPError, httpx.StreamError, OSError) as fault:
        sample.reason, framing = type(fault).__name__, "sse"
    sample.ended = _now()
    _read(arrivals, framing, sample)
    return sample


async def _stream(
    client: httpx.AsyncClient,
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    arrivals: Arrivals,
) -> str:
    """Keep what arrives, and when; the framing of the body."""
    # No timeout of httpx's own: the caller's patience bounds the whole.
    asked = client.stream("POST", url, content=body, headers=headers, timeout=None)
    async with asked as response:
        if response.status_code != _OK:
            raise _Refused(f"status {response.status_code}", await _head(response))
        framing = framing_of(response.headers.get("content-type", ""))
        if framing is None:
            raise _Refused("no stream")
        kept = 0
        async for data in response.aiter_raw():
            arrivals.append((_now(), data))
            kept += len(data)
            if kept > MAX_ANSWER:
                raise _Refused("answer too long")
    return framing


async def _head(response: httpx.Response) -> bytes:
    async for data in response.aiter_raw():
        return data
    return b""


def _read(arrivals: Arrivals, framing: str, sample: Sample) -> None:
    """Find the tokens among the arrivals, and what the answer said of itself."""
    detector = TokenDetector(framing)
    bits = 0
    for at, data in arrivals:
        found = detector.feed(data)
        bits |= found
        if found & Seen.TOKEN:
            sample.first = sample.first or at
            sample.last = at
    bits |= detector.close()
    facts = detector.facts
    if facts.usage is not None:
        sample.prompt_tokens = facts.usage.input_tokens
        sample.cached_tokens = facts.usage.cached_tokens
        sample.output_tokens = facts.usage.output_tokens
    _read_ledger(b"".join(data for _, data in arrivals), sample)
    if sample.outcome == "ok":
        _judge(bits, facts.error_type, sample)


def _read_ledger(body: bytes, sample: Sample) -> None:
    """The server's own account of its TTFT, which it puts beside the first token when asked."""
    for told in inband.read_stream(body):
        if told.at == inband.FIRST_TOKEN:
            sample.phases = {phase: ns / 1e9 for phase, ns in told.phases.items()}
            sample.server_ttft = sum(told.phases.values()) / 1e9


def _judge(bits: int, error: str | None, sample: Sample) -> None:
    """A stream that came to its end may still have failed."""
    if bits & Seen.ERROR:
        sample.outcome, sample.reason = "failed", f"error {error or 'unnamed'}"
    elif sample.first is None:
        sample.outcome, sample.reason = "failed", "no token"
