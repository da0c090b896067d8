"""What a run does at the server: ask, count tokens, read counters, wait until it is there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import httpx

from llm_trace.bench import counters
from llm_trace.bench.counters import Counters
from llm_trace.bench.errors import BenchError
from llm_trace.bench.exchange import ask
from llm_trace.bench.sample import Sample
from llm_trace.bench.target import Target
from llm_trace.core.clock import SYSTEM

_OK: Final = 200
SHORT: Final = 30.0
"""Seconds for what is no generation: models, counters, tokens of a text."""
_SETTLE: Final = 2.0
"""Seconds that a server may take to count a request whose answer has ended."""
_PAUSE: Final = 0.05
_REFUSED: Final = (401, 403)


class Server:
    """One target behind one pool of connections.

    Args:
        client: The pool.
        target: Whom to ask, and how.
    """

    def __init__(self, client: httpx.AsyncClient, target: Target) -> None:
        self.client = client
        self.target = target
        self._headers = {"content-type": "application/json", **target.headers}

    async def ask(self, prompt: str, max_tokens: int, patience: float) -> Sample:
        """One streamed request."""
        target = self.target
        body = target.body(prompt, max_tokens)
        return await ask(self.client, target.url, body, self._headers, patience)

    async def counters(self) -> Counters | None:
        """The server's counters now; None where it shows none."""
        target = self.target
        known = target.headers if target.metrics.startswith(f"{target.root}/") else {}
        headers = {**known, "accept": "text/plain"}  # a key goes to the server that it is for
        try:
            answer = await self.client.get(target.metrics, headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL):
            return None
        return counters.parse(answer.text) if answer.status_code == _OK else None

    async def settled(self, start: Counters | None, requests: int) -> Counters | None:
        """The counters now, once they know of `requests` more than at the `start`.

        A server counts a request a moment after its answer has ended.
        """
        until = SYSTEM.monotonic_ns() + _SETTLE * 1e9
        while start is not None and (now := await self.counters()) is not None:
            known = now.since(start).requests
            if known is None or known >= requests or SYSTEM.monotonic_ns() > until:
                return now
            await asyncio.sleep(_PAUSE)
        return None

    async def open(self, connections: int) -> None:
        """Have so many connections open and used, so that no request pays for one."""
        await asyncio.gather(*(self._touch() for _ in range(connections)))

    async def _touch(self) -> None:
        try:
            await self.client.get(f"{self.target.root}/v1/models", headers=dict(self._headers))
        except httpx.HTTPError:
            return  # the measured request will say what is wrong


def new_client(connections: int, *, remote: bool) -> httpx.AsyncClient:
    """A pool of at most so many connections, which follows no redirect to elsewhere.

    Args:
        connections: As many as requests may be in flight, and one more for the counters.
        remote: Whether the proxies of the environment may be used.
    """
    limits = httpx.Limits(
        max_connections=connections + 1, max_keepalive_connections=connections + 1
    )
    headers = {"accept-encoding": "identity", "user-agent": "llm-trace-bench"}
    timeout = httpx.Timeout(SHORT, pool=None)
    return httpx.AsyncClient(limits=limits, timeout=timeout, headers=headers, trust_env=remote)


async def find_model(
    client: httpx.AsyncClient,
    root: str,
    headers: Mapping[str, str],
    wanted: str | None,
    wait: float,
) -> tuple[str, int | None]:
    """The model to ask for and the tokens that it has room for, once the server answers.

    Raises:
        BenchError: It does not answer within `wait` seconds, refuses, or lacks the model.
    """
    listed = await _list_models(client, f"{root}/v1/models", headers, wait)
    names = [one["id"] for one in listed if isinstance(one.get("id"), str)]
    if wanted is None and not names:
        raise BenchError(f"{root}/v1/models names no model: name one with --model.")
    if wanted is not None and names and wanted not in names:
        raise BenchError(f"the server serves {', '.join(names[:8])}, not {wanted}: use --model.")
    chosen = wanted or names[0]
    room = next((one.get("max_model_len") for one in listed if one.get("id") == chosen), None)
    named = chosen.encode("utf-8", "replace").decode()  # JSON can spell what no file can hold
    return named, room if type(room) is int else None


async def _list_models(
    client: httpx.AsyncClient, url: str, headers: Mapping[str, str], wait: float
) -> list[dict[str, Any]]:
    until = SYSTEM.monotonic_ns() + wait * 1e9
    while True:
        try:
            answer = await client.get(url, headers=dict(headers))
        except httpx.InvalidURL as fault:
            raise BenchError(f"{url!r} is no URL: {fault}.") from None
        except httpx.HTTPError as fault:
            if SYSTEM.monotonic_ns() >= until:
                raise BenchError(_unreachable(url, fault)) from None
        else:
            if answer.status_code < 500 or SYSTEM.monotonic_ns() >= until:  # noqa: PLR2004 - not ready yet
                return _models_of(url, answer)
        await asyncio.sleep(_PAUSE)


def _unreachable(url: str, fault: Exception) -> str:
    said = str(fault) or type(fault).__name__
    return f"{url} does not answer ({said}): is the server up? --wait SECONDS waits for it."


def _models_of(url: str, answer: httpx.Response) -> list[dict[str, Any]]:
    if answer.status_code in _REFUSED:
        raise BenchError(f"{url} answers {answer.status_code}: name a key with --api-key-env.")
    if answer.status_code != _OK:
        return []  # a server may have no such list
    try:
        data = answer.json()["data"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
    return [one for one in data if isinstance(one, dict)] if isinstance(data, list) else []


def seconds_left(deadline: int) -> float:
    """Seconds until a monotonic stamp; 0 when it is over."""
    return max(0.0, (deadline - SYSTEM.monotonic_ns()) / 1e9)
