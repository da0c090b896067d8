"""Who a request is in its trace: W3C ids as integers, and the headers made from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TraceIdentity:
    """The root span of one request, before and after it exists as a span."""

    trace_id: int
    span_id: int
    parent_span_id: int = 0
    """0 when the request starts a trace."""
    parent_is_remote: bool = True
    sampled: bool = True
    trace_state: str = ""
    owns_server_span: bool = True
    """False under a local server span of the same request: ours is INTERNAL then."""
    baggage: Mapping[str, object] = field(default_factory=dict)
    """The inbound W3C baggage, for inner instrumentation to hand on."""

    def traceparent(self, span_id: int = 0) -> str:
        """The `traceparent` value that makes a span the child of `span_id`, or of the root."""
        flags = "01" if self.sampled else "00"
        return f"00-{self.trace_id:032x}-{span_id or self.span_id:016x}-{flags}"

    def headers(self, span_id: int = 0) -> dict[str, str]:
        """Outbound propagation headers for a child of `span_id`, or of the root."""
        headers = {"traceparent": self.traceparent(span_id)}
        if self.trace_state:
            headers["tracestate"] = self.trace_state
        return headers
