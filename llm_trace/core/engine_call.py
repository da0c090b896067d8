"""One call of an engine: the contract that any inference engine can speak.

Entering it is the hand-off. What the engine then says of its own moments is marked here; what it
does not say stays missing and its time is called `engine`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

from llm_trace import semconv as s
from llm_trace.core import faults
from llm_trace.core.clock import Clock
from llm_trace.core.inside import Inside
from llm_trace.core.ledger import stamp
from llm_trace.core.outcome import error_type, is_cancel
from llm_trace.core.record import CallRecord, Leg, PrefillChunk, Transfer
from llm_trace.core.ticks import TickSource, rhythm_of
from llm_trace.core.usage import Usage, count

if TYPE_CHECKING:
    from typing_extensions import Self

Moment = Literal["queued", "scheduled", "preempted", "first_token", "last_token"]
MAX_CHUNKS: Final = 32
"""Chunks of a prompt whose tokens and times are kept; all are counted."""
MAX_TRANSFERS: Final = 8
"""Transfers of a prompt's KV cache that are kept; one that fails may begin again."""
MOMENTS: Final = ("queued", "scheduled", "preempted", "first_token", "last_token")


class Batch(NamedTuple):
    """What an engine had to do when it first scheduled a call."""

    running: int
    waiting: int
    kv_usage: float | None
    deferred: int = 0
    """Of those that waited, how many for something else than room; the most while this one did."""
    most_running: int | None = None
    """While this one waited."""
    most_kv_usage: float | None = None
    """Likewise."""


class Request(Protocol):
    """What a call needs of the request that it belongs to."""

    clock: Clock
    closed: bool

    def late(self, event: str) -> bool:
        """Whether the request is over; counts what comes too late for it."""

    def open_call(self, call: EngineCall) -> None:
        """Keep a call that is a span of its own."""

    def ended(self, call: EngineCall) -> None:
        """A call without a span has returned."""

    def headers(self, span_id: int = 0) -> dict[str, str]:
        """Propagation headers for a child of `span_id`."""

    def adopt_interval(self, phase: str, start: int, end: int) -> None:
        """Keep an interval that somebody else watched; stamps in monotonic ns."""


class EngineCall:
    """A context manager, sync or async, around one call of an engine."""

    __slots__ = (
        "attempts",
        "attributes",
        "batch",
        "chunks",
        "cold",
        "computed_tokens",
        "error_type",
        "external",
        "finish_reason",
        "first_byte",
        "first_token",
        "generated",
        "handed_off",
        "inside",
        "last_token",
        "leg",
        "model",
        "operation",
        "parent_span_id",
        "preempted",
        "preemptions",
        "prefill_chunks",
        "queued",
        "rank",
        "requeued_ns",
        "returned",
        "same_prompt",
        "scheduled",
        "seen_scheduled",
        "seen_waiting",
        "sent",
        "source",
        "span_id",
        "ticks",
        "timeline",
        "tokens",
        "transfers",
    )

    def __init__(
        self,
        timeline: Request,
        operation: str,
        model: str,
        *,
        source: s.Source = "app",
        attributes: Mapping[str, object] | None = None,
    ) -> None:
        self.timeline = timeline
        self.operation = operation
        self.model = model
        self.source = source
        self.attributes = dict(attributes or {})
        self.span_id = self.parent_span_id = 0
        self.handed_off = self.queued = self.scheduled = 0
        self.first_token = self.last_token = self.returned = 0
        self.preempted = self.preemptions = self.requeued_ns = 0
        self.generated = 0
        """Output tokens that the engine's ticks brought, where it has ticks."""
        self.prefill_chunks: int | None = None
        self.chunks: tuple[PrefillChunk, ...] = ()
        self.computed_tokens = 0
        self.transfers: tuple[Transfer, ...] = ()
        self.sent = self.first_byte = 0
        """Behind a wire: when the last attempt was sent, and when its first byte was here."""
        self.attempts = 0
        """Behind a wire: how often it was sent."""
        self.inside: Inside | None = None
        """Behind a wire: what the engine said of its own time."""
        self.seen_waiting = self.seen_scheduled = 0
        """What follows from the engine's reports, for as long as it has not stamped it itself."""
        self.cold = False
        self.tokens = Usage()
        self.external: int | None = None
        self.batch: Batch | None = None
        self.rank: int | None = None
        self.same_prompt = False
        """It reads the prompt of a call before it: for its request, the prompt is one."""
        self.leg: Leg | None = None
        self.ticks: TickSource | None = None
        self.error_type: str | None = None
        self.finish_reason: str | None = None

    def mark(self, moment: Moment, at: float | None = None) -> None:
        """Stamp a moment of the engine.

        Args:
            moment: `queued`, `scheduled`, `preempted`, `first_token` or `last_token`.
                The first `queued`, `scheduled` and `first_token` win, the latest `last_token`.
            at: Monotonic nanoseconds of this host; None means now. What is no positive number
                is counted and left out.
        """
        if moment not in MOMENTS:
            kinds = ", ".join(MOMENTS)
            faults.contain("engine_call", ValueError(f"unknown moment {moment!r}: use {kinds}"))
            return
        when = self.timeline.clock.monotonic_ns() if at is None else stamp(at)
        if not when:
            faults.drop("invalid_stamp")
        elif not self.timeline.late("mark"):
            _MARKS[moment](self, when)

    def usage(
        self,
        *,
        input_tokens: int | None = None,
        cached_tokens: int | None = None,
        output_tokens: int | None = None,
        reasoning_tokens: int | None = None,
    ) -> None:
        """Say how many tokens the call read and wrote; None leaves what was said before."""
        if self.timeline.late("usage"):
            return
        said = (input_tokens, output_tokens, cached_tokens, reasoning_tokens)
        self.tokens = self.tokens.overlaid(Usage(*map(count, said)))

    def computed(self, tokens: int, start: int, end: int) -> None:
        """The engine computed so many prompt tokens in one step, between two stamps in ns."""
        self.prefill_chunks = (self.prefill_chunks or 0) + 1
        self.computed_tokens += tokens
        if len(self.chunks) < MAX_CHUNKS:
            self.chunks += (PrefillChunk(tokens, start, end),)

    def transferred(self, start: int, end: int) -> None:
        """The prompt's KV cache came from elsewhere, from `start` on, ns; `end` 0: it still does.

        What is said of one that was still coming takes its place.
        """
        kept = self.transfers
        if kept and not kept[-1].end:
            kept = kept[:-1]
        if len(kept) < MAX_TRANSFERS:
            self.transfers = (*kept, Transfer(start, end))
        else:
            faults.drop("kv_transfers")

    def headers(self) -> dict[str, str]:
        """Propagation headers that make the upstream's spans children of this call.

        Asking for them says that the engine is behind a wire: the call's span is CLIENT then.
        """
        self.source = "upstream"
        return self.timeline.headers(self.span_id)

    def begin(self) -> None:
        """Stamp the hand-off; `with` does it."""
        self.handed_off = self.handed_off or self.timeline.clock.monotonic_ns()

    def end(self, error: BaseException | None = None) -> None:
        """Stamp the return; `with` does it, later calls change nothing."""
        if self.returned or self.timeline.closed:
            return
        self.returned = self.timeline.clock.monotonic_ns()
        if error is not None and not is_cancel(error):
            self.error_type = error_type(error)

    def __enter__(self) -> Self:
        self.returned, self.error_type = 0, None  # entered again, by a retry, it goes on
        self.timeline.open_call(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end(error)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, trace)

    def usage_now(self) -> Usage:
        """What is known by now; what was said beats what was counted."""
        counted = Usage(output_tokens=self.generated or None)
        return counted.overlaid(self.tokens)

    def usage_added(self) -> Usage:
        """What it adds to the request's: not the prompt that another call has read."""
        usage = self.usage_now()
        if self.same_prompt:
            return usage._replace(input_tokens=None, cached_tokens=None)
        return usage

    def stamps(self) -> tuple[int, int, bool]:
        """When it was queued and scheduled, ns, and whether that is inferred; 0 is not known."""
        if self.scheduled or not (self.seen_scheduled or self.seen_waiting):
            return self.queued, self.scheduled, False
        return self.queued or self.seen_waiting, self.seen_scheduled, True

    def freeze(self) -> CallRecord:
        """The call as it stands now."""
        queued, scheduled, inferred = self.stamps()
        ticks = self.ticks.read(self.last_token) if self.ticks is not None else None
        rhythm = rhythm_of(ticks) if ticks is not None else None
        batch = self.batch
        return CallRecord(
            operation=self.operation,
            model=self.model,
            source=self.source,
            span_id=self.span_id,
            parent_span_id=self.parent_span_id,
            handed_off=self.handed_off,
            queued=queued,
            scheduled=scheduled,
            first_token=self.first_token,
            last_token=self.last_token,
            returned=self.returned,
            usage=self.usage_now(),
            preemptions=self.preemptions,
            requeued=self.requeued_ns,
            cold=self.cold,
            attributes=dict(self.attributes),
            error_type=self.error_type,
            finish_reason=self.finish_reason,
            prefill_chunks=self.prefill_chunks,
            chunks=self.chunks,
            transfers=self.transfers,
            sent=self.sent,
            first_byte=self.first_byte,
            inside=self.inside,
            inferred=inferred,
            running=batch.running if batch else None,
            waiting=batch.waiting if batch else None,
            kv_usage=batch.kv_usage if batch else None,
            deferred=batch.deferred if batch else None,
            most_running=batch.most_running if batch else None,
            most_kv_usage=batch.most_kv_usage if batch else None,
            computed_tokens=self.computed_tokens if self.prefill_chunks else None,
            external_tokens=self.external,
            rank=self.rank,
            leg=self.leg,
            longest_gap=rhythm.longest if rhythm else None,
            stall=rhythm.stall if rhythm else None,
            stall_cause=rhythm.cause if rhythm else None,
            token_gaps=rhythm.gaps if rhythm else None,
        )

    def _queued(self, at: int) -> None:
        self.queued = self.queued or at

    def _scheduled(self, at: int) -> None:
        self.scheduled = self.scheduled or at
        if self.preempted:
            self.requeued_ns += max(0, at - self.preempted)
            self.preempted = 0

    def _preempted(self, at: int) -> None:
        self.preemptions += 1
        self.preempted = at

    def _first_token(self, at: int) -> None:
        self.first_token = self.first_token or at
        self.last_token = max(self.last_token, at)

    def _last_token(self, at: int) -> None:
        self.last_token = max(self.last_token, at)


_MARKS: Final = {
    "queued": EngineCall._queued,  # noqa: SLF001 - the table of this class's own marks
    "scheduled": EngineCall._scheduled,  # noqa: SLF001
    "preempted": EngineCall._preempted,  # noqa: SLF001
    "first_token": EngineCall._first_token,  # noqa: SLF001
    "last_token": EngineCall._last_token,  # noqa: SLF001
}
