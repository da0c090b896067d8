"""The server that is measured: its address, what it serves, and how it is asked."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import SplitResult, urlunsplit

from llm_trace.address import http_url
from llm_trace.bench.errors import BenchError

Api = Literal["chat", "completions"]

PATHS: Final[Mapping[Api, str]] = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
}


@dataclass(frozen=True, kw_only=True)
class Target:
    """Everything that decides how a request looks."""

    root: str
    """Scheme, host, port and a path prefix, without `/v1`."""
    api: Api
    model: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    extra: Mapping[str, Any] = field(default_factory=dict)
    """More of the body, as the user gave it; it beats what we would send."""
    metrics: str = ""
    """Where the server's Prometheus page is."""

    @property
    def url(self) -> str:
        """Where requests go."""
        return self.root + PATHS[self.api]

    def body(self, prompt: str, max_tokens: int) -> bytes:
        """A streamed request that reports its usage and asks for exactly so many tokens."""
        asked = {
            "model": self.model,
            **self.content(prompt),
            "max_tokens": max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self.extra,
        }
        return json.dumps(asked).encode()

    def content(self, prompt: str) -> dict[str, Any]:
        """The prompt as this API takes it."""
        if self.api == "completions":
            return {"prompt": prompt}
        return {"messages": [{"role": "user", "content": prompt}]}


def check_url(url: str, *, allow_remote: bool) -> None:
    """Make sure that `url` may be asked.

    Raises:
        LlmTraceError: No usable URL.
        BenchError: A host that is not this one, and that was not allowed.
    """
    host = _split(url).hostname or ""
    if not allow_remote and not is_local(host):
        raise BenchError(
            f"{host} is not this machine, and a benchmark is load: add --allow-remote if that "
            "server is yours to load."
        )


def root_of(url: str) -> str:
    """The base of a checked URL: `/v1`, and what follows it, left out."""
    parts = _split(url)
    path = parts.path.rstrip("/")
    for known in (*PATHS.values(), "/v1"):
        path = path.removesuffix(known)
    return urlunsplit((parts.scheme, parts.netloc, path.rstrip("/"), "", ""))


def _split(url: str) -> SplitResult:
    return http_url(url, such_as="http://127.0.0.1:8000", key_option="--api-key-env")


def is_local(host: str) -> bool:
    """Whether `host` names this machine by the name or an address of the loopback."""
    if host.rstrip(".").lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
