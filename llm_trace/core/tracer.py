"""The port by which a tracing library gives a running request its place in a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from llm_trace.core.identity import TraceIdentity

Headers = Sequence[tuple[bytes, bytes]]

W3C: Final = frozenset({b"traceparent", b"tracestate"})


class Tracer(Protocol):
    """Gives a request its place in a trace while it runs."""

    def begin(self, headers: Headers, name: str) -> TraceIdentity | None:
        """The identity of a new request, its parent read from its own headers."""

    def activate(self, identity: TraceIdentity, span_id: int = 0) -> object:
        """Make a span the current one of the ambient context, for inner spans to find."""

    def deactivate(self, token: object) -> None:
        """Undo `activate`; from another task or context it does nothing."""

    def formats(self) -> frozenset[bytes]:
        """The headers, in lower case, that carry a trace context here: W3C's and what else is set.

        Asked for every request.
        """

    def headers(self, identity: TraceIdentity, span_id: int = 0) -> Mapping[str, str]:
        """A trace context for children of `span_id`, or of the root, in all of the formats."""


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

    def formats(self) -> frozenset[bytes]:
        """W3C's alone."""
        return W3C

    def headers(self, identity: TraceIdentity, span_id: int = 0) -> Mapping[str, str]:
        """W3C's alone."""
        return identity.headers(span_id)


NO_TRACER: Final = NoTracer()
