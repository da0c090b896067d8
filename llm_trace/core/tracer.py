"""The port by which a tracing library gives a running request its place in a trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from llm_trace.core.identity import TraceIdentity

Headers = Sequence[tuple[bytes, bytes]]


class Tracer(Protocol):
    """Gives a request its place in a trace while it runs."""

    def begin(self, headers: Headers, name: str) -> TraceIdentity | None:
        """The identity of a new request, its parent read from its own headers."""

    def activate(self, identity: TraceIdentity, span_id: int = 0) -> object:
        """Make a span the current one of the ambient context, for inner spans to find."""

    def deactivate(self, token: object) -> None:
        """Undo `activate`; from another task or context it does nothing."""


class NoTracer:
    """Where no provider is configured: requests have no identity and nothing is current."""

    def begin(self, headers: Headers, name: str) -> TraceIdentity | None:  # noqa: ARG002
        """No identity."""
        return None

    def activate(self, identity: TraceIdentity, span_id: int = 0) -> object:  # noqa: ARG002
        """Nothing to do."""
        return None

    def deactivate(self, token: object) -> None:
        """Nothing to undo."""


NO_TRACER: Final = NoTracer()
