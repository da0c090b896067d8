"""One measured request: what the client's clock and the server's answer say of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Outcome = Literal["ok", "failed", "cancelled"]


@dataclass(slots=True, kw_only=True)
class Sample:
    """Stamps are monotonic ns of this process; what is not known is None."""

    started: int
    """Just before the request is sent; the connection may have to be opened."""
    ended: int = 0
    first: int | None = None
    """Arrival of the first bytes that complete a token."""
    last: int | None = None
    """Arrival of the last token."""
    outcome: Outcome = "failed"
    reason: str | None = None
    """Why it is not ok: a word or two, of a small set."""
    said: str | None = None
    """How the server's refusal begins, for a person."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    server_ttft: float | None = None
    """Seconds, by the server's own ledger, where it sends one."""
    phases: Mapping[str, float] | None = None
    """Seconds of TTFT by phase, by the same ledger."""

    @property
    def ttft(self) -> float | None:
        """Seconds from the sending to the first token."""
        return None if self.first is None else (self.first - self.started) / 1e9

    @property
    def outside(self) -> float | None:
        """Seconds of TTFT outside the server's ledger: the way there and back, and this client."""
        if self.ttft is None or self.server_ttft is None:
            return None
        return self.ttft - self.server_ttft

    @property
    def duration(self) -> float:
        """Seconds from the sending to the end of the answer."""
        return (self.ended - self.started) / 1e9

    @property
    def tpot(self) -> float | None:
        """Mean seconds between output tokens after the first; None under two tokens."""
        if self.first is None or self.last is None or (self.output_tokens or 0) < 2:  # noqa: PLR2004 - a gap needs two
            return None
        return (self.last - self.first) / 1e9 / ((self.output_tokens or 0) - 1)
