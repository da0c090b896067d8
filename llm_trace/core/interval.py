"""A named stretch of app time, open or closed."""

from __future__ import annotations


class Interval:
    """One entry into `phase()` or `retrieval()`, or a retrieval that another instrumentation saw.

    Stamps in monotonic ns. The latter has a span of its own already: its `span_id` is 0.
    """

    __slots__ = ("attributes", "end", "error_type", "parent_span_id", "phase", "span_id", "start")

    def __init__(
        self,
        phase: str,
        start: int,
        span_id: int,
        parent_span_id: int,
        attributes: dict[str, object],
    ) -> None:
        self.phase = phase
        self.start = start
        self.end = 0
        """0 while it is open."""
        self.span_id = span_id
        self.parent_span_id = parent_span_id
        self.attributes = attributes
        self.error_type: str | None = None
