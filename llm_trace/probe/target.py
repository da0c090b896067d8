"""What the probe asks: where, with which headers and which body."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from llm_trace.address import http_url
from llm_trace.core.inband import ASKED, HEADER
from llm_trace.probe.errors import ProbeError

CHAT: Final = "/v1/chat/completions"
MODELS: Final = "/v1/models"

_ROOTS: Final = ("", "/", "/v1", "/v1/")
"""Paths that name a server, and no route of it."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A route of a server, and how it is asked."""

    secure: bool
    host: str
    port: int
    path: str
    """With the query."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = 120.0
    """Seconds for each wait."""

    @property
    def is_chat(self) -> bool:
        """Whether it is the route that takes a model and messages."""
        return self.path.partition("?")[0].endswith(CHAT)

    @property
    def url(self) -> str:
        """The route, as people write it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{host}:{self.port}{self.path}"


def target_of(url: str, headers: Mapping[str, str], timeout: float) -> Target:
    """The target that `url` names.

    Raises:
        LlmTraceError: No usable URL.
    """
    parts = http_url(url, such_as="https://llm.example.com", key_option="--api-key-env")
    if not url.isascii():
        raise ProbeError(f"{url!r} is no URL: escape what is not ASCII.")
    secure = parts.scheme == "https"
    path = CHAT if parts.path in _ROOTS else parts.path
    return Target(
        secure=secure,
        host=parts.hostname or "",
        port=parts.port or (443 if secure else 80),
        path=f"{path}?{parts.query}" if parts.query else path,
        headers=headers,
        timeout=timeout,
    )


def chat_body(model: str | None, prompt: str, max_tokens: int) -> dict[str, Any]:
    """A streamed chat request; a server that lists no models may need none."""
    named = {} if model is None else {"model": model}
    messages = [{"role": "user", "content": prompt}]
    return {**named, "messages": messages, "max_tokens": max_tokens, "stream": True}


@dataclass(frozen=True)
class Question:
    """One request, with a trace of its own."""

    body: bytes
    trace_id: str
    headers: Mapping[str, str] = field(repr=False)


def question(target: Target, body: Mapping[str, Any]) -> Question:
    """A new request: its trace is sampled, and the server is asked for its ledger."""
    trace_id, span_id = secrets.token_hex(16), secrets.token_hex(8)
    headers = {
        "content-type": "application/json",
        "accept": "text/event-stream, application/json",
        # Compressed bytes come in the compressor's lumps, and tokens could not be seen.
        "accept-encoding": "identity",
        "user-agent": "llm-trace-probe",
        HEADER: ASKED,
        **target.headers,
        "traceparent": f"00-{trace_id}-{span_id}-01",
    }
    return Question(json.dumps(body).encode(), trace_id, headers)
