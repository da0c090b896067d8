"""The live, mutable side of one request: stamps and facts as they come in.

State of a request lives here and nowhere else. A closed timeline takes late events quietly: work
that the app spawned may outlive the request.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from llm_trace import semconv as s
from llm_trace.core import faults
from llm_trace.core.clock import SYSTEM, Clock
from llm_trace.core.engine_call import EngineCall
from llm_trace.core.identity import TraceIdentity
from llm_trace.core.interval import Interval
from llm_trace.core.ledger import MAX_CLAIMS
from llm_trace.core.loop_lag import LoopLag
from llm_trace.core.outcome import error_type, is_cancel
from llm_trace.core.surplus import Surplus
from llm_trace.core.tracer import NO_TRACER, Tracer
from llm_trace.settings import Settings

MAX_CALLS: Final = 128
MAX_ATTRIBUTES: Final = 64


def random_span_id() -> int:
    """A non-zero 64-bit id."""
    return random.getrandbits(64) or 1


class Timeline:
    """One request in flight.

    Args:
        clock: Where time comes from.
        carrier: The request's own headers, as ASGI gives them.
        tracer: Makes spans current for inner instrumentation to find.
        new_span_id: Source of span ids.
    """

    __slots__ = (
        "__weakref__",
        "admitted",
        "attributes",
        "body_complete",
        "calls",
        "carrier",
        "clock",
        "closed",
        "first_answer_sent",
        "first_token_sent",
        "identity",
        "intervals",
        "last_token_sent",
        "loop",
        "loop_lag",
        "new_span_id",
        "received",
        "send_wait",
        "send_wait_first",
        "settings",
        "state",
        "streams",
        "surplus",
        "tracer",
        "wall_offset",
    )

    def __init__(
        self,
        clock: Clock = SYSTEM,
        carrier: Iterable[tuple[bytes, bytes]] = (),
        tracer: Tracer = NO_TRACER,
        new_span_id: Callable[[], int] = random_span_id,
    ) -> None:
        self.clock = clock
        self.received = clock.monotonic_ns()
        self.wall_offset = clock.wall_ns() - self.received
        self.carrier = carrier
        self.tracer = tracer
        self.new_span_id = new_span_id
        self.identity: TraceIdentity | None = None
        self.body_complete = self.admitted = 0
        self.first_token_sent = self.first_answer_sent = self.last_token_sent = 0
        self.loop: LoopLag | None = None
        """The event loop that serves the request, where it is watched."""
        self.loop_lag: int | None = None
        self.send_wait = self.send_wait_first = 0
        """Ns that the server's `send` was held back: until now, and until the first token."""
        self.intervals: list[Interval] = []
        self.calls: list[EngineCall] = []
        self.surplus: Surplus | None = None
        """The engine's calls past the bound; None where there are none."""
        self.state: Mapping[str, object] = {}
        """The scope's `state`, where servers leave facts for middlewares."""
        self.settings: Settings | None = None
        """Of the middleware that the request came through."""
        self.attributes: dict[str, object] = {}
        self.streams = True
        """Whether its client waits for a first token, as far as it said."""
        self.closed = False

    @property
    def trace_id(self) -> str | None:
        """The trace id in hex, for logs and answers; None without a tracer."""
        return f"{self.identity.trace_id:032x}" if self.identity else None

    @property
    def span_id(self) -> str | None:
        """The root span's id in hex; None without a tracer."""
        return f"{self.identity.span_id:016x}" if self.identity else None

    def late(self, event: str) -> bool:
        """Whether the request is over; an `event` that comes too late for it is counted.

        Outside a request there is nothing to be late for: nothing is counted.
        """
        if self.closed and self is not NO_REQUEST:
            faults.drop(f"late_{event}")
        return self.closed

    def waited_until(self, now: int) -> None:
        """The wait for the first token is over: what of it was neither the app's nor the engine's.

        Called when the token was sent, or at the end of a request without one.
        """
        self.send_wait_first = self.send_wait
        if self.loop is not None:
            self.loop_lag = self.loop.longest(self.received, now)

    def admit(self) -> None:
        """The app accepted the request; the first call counts."""
        if not self.late("admission"):
            self.admitted = self.admitted or self.clock.monotonic_ns()

    def annotate(self, attributes: Mapping[str, object]) -> None:
        """Add attributes to the root span; a bounded number of them."""
        if self.late("attributes"):
            return
        for key, value in attributes.items():
            if len(self.attributes) >= MAX_ATTRIBUTES and key not in self.attributes:
                faults.drop("attributes")
                continue
            self.attributes[key] = value

    def open_interval(
        self, phase: str, attributes: dict[str, object], parent_span_id: int = 0
    ) -> Interval:
        """Begin an interval; past the bound, or too late, it is not kept.

        One that is not kept never becomes a span, so what is inside it belongs to its parent.
        """
        interval = Interval(
            phase, self.clock.monotonic_ns(), self.new_span_id(), parent_span_id, attributes
        )
        if self._has_room("phase", len(self.intervals) < MAX_CLAIMS):
            self.intervals.append(interval)
        else:
            interval.span_id = parent_span_id
        return interval

    def adopt_interval(self, phase: str, start: int, end: int) -> None:
        """Keep an interval that somebody else watched; stamps in monotonic ns."""
        if self._has_room("phase", len(self.intervals) < MAX_CLAIMS):
            interval = Interval(phase, start, self.new_span_id(), 0, {})
            interval.end = end
            self.intervals.append(interval)

    def keep_interval(self, interval: Interval) -> bool:
        """Keep what another instrumentation saw; of the room, the app's own words have the half.

        It stands before what the app says, which therefore wins where both claim the same time.
        """
        theirs = sum(not each.span_id for each in self.intervals)
        kept = self._has_room("retrieval", theirs < MAX_CLAIMS // 2)
        if kept:
            self.intervals.insert(0, interval)
        return kept

    def span_ids(self) -> set[int]:
        """The spans of ours that others may have as their parents."""
        ids = {interval.span_id for interval in self.intervals}
        ids |= {call.span_id for call in self.calls}
        return ids if self.identity is None else ids | {self.identity.span_id}

    def close_interval(self, interval: Interval, error: BaseException | None = None) -> None:
        """End an interval; the end of the request has already ended those still open."""
        if interval.end or self.closed:
            return
        interval.end = self.clock.monotonic_ns()
        if error is not None and not is_cancel(error):
            interval.error_type = error_type(error)

    def open_call(self, call: EngineCall) -> None:
        """Begin an engine call that is a span of its own, unless it cannot be kept."""
        call.span_id = call.span_id or self.new_span_id()
        call.begin()
        self.adopt_call(call)
        if call not in self.calls:
            call.span_id = call.parent_span_id

    def adopt_call(self, call: EngineCall) -> None:
        """Keep a call; one without a span of its own hangs its phases on the root span.

        A call that is entered again, by a retry, is still one call. Past the bound it is counted
        only; whoever adopts one without a span says when it has `ended`.
        """
        if call in self.calls:
            return
        if self._has_room("call", len(self.calls) < MAX_CALLS):
            self.calls.append(call)
        elif not (self.closed or call.span_id):
            if self.surplus is None:
                self.surplus = Surplus()
            self.surplus.begin()

    def ended(self, call: EngineCall) -> None:
        """A call without a span has returned."""
        if self.surplus is not None and call not in self.calls:
            self.surplus.end(call)

    def _has_room(self, kind: str, below_bound: bool) -> bool:  # noqa: FBT001 - one caller each
        if self.late(kind):
            return False
        if not below_bound:
            faults.drop(f"{kind}s")
        return below_bound

    @property
    def surplus_under_way(self) -> bool:
        """Whether a call past the bound has not returned."""
        return self.surplus is not None and self.surplus.under_way > 0

    def headers(self, span_id: int = 0) -> dict[str, str]:
        """Propagation headers for a child of `span_id`, or of the root.

        Without a tracer the inbound trace context is handed on as it came.
        """
        try:
            if self.identity is not None:
                return dict(self.tracer.headers(self.identity, span_id))
            formats = self.tracer.formats()
        except Exception as error:  # noqa: BLE001 - a propagator of the app's may raise
            faults.contain("propagator", error)
            return self.identity.headers(span_id) if self.identity else {}
        return {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in self.carrier
            if name in formats
        }

    def activate(self, span_id: int = 0) -> object:
        """Make the root, or `span_id`, the span that inner instrumentation finds as its parent."""
        if self.identity is None:
            return None
        try:
            return self.tracer.activate(self.identity, span_id)
        except Exception as error:  # noqa: BLE001 - rule 1: never hurt the host
            faults.contain("tracer", error)
            return None

    def deactivate(self, token: object) -> None:
        """Undo `activate`."""
        try:
            self.tracer.deactivate(token)
        except Exception as error:  # noqa: BLE001 - rule 1: never hurt the host
            faults.contain("tracer", error)

    def live_phase(self) -> str:
        """The phase that the request is in now, as far as anyone has said."""
        if self.first_token_sent:
            return s.DECODE
        if self.calls and (not self.calls[-1].returned or self.surplus_under_way):
            return _engine_phase(self.calls[-1], streams=self.streams)
        if self.intervals and not self.intervals[-1].end:
            return self.intervals[-1].phase
        return s.UNATTRIBUTED if self.admitted or self.body_complete else s.ADMISSION


def _engine_phase(call: EngineCall, *, streams: bool) -> str:
    if call.first_token and call.operation != s.EMBEDDINGS:
        return s.FIRST_TOKEN if streams else s.DECODE
    queued, scheduled, _ = call.stamps()
    if scheduled:
        return s.PREFILL
    return s.QUEUE_WAIT if queued else s.ENGINE


def _closed() -> Timeline:
    timeline = Timeline()
    timeline.closed = True
    return timeline


NO_REQUEST: Final = _closed()
"""The handle outside a request: every method works and nothing is kept."""
