"""One request as the rules see it: what it waited for, and the facts that bear on it."""

from __future__ import annotations

from collections.abc import Mapping

from llm_trace import semconv as s
from llm_trace.core import ledger as m
from llm_trace.core.record import CallRecord, RequestRecord, computed_tokens
from llm_trace.core.verdict import Ratios
from llm_trace.diagnosis.floors import Floors


class Case:
    """A record, opened for the rules; times in ns.

    Args:
        record: The finished request.
        floors: What is known of its engine.
    """

    __slots__ = ("call", "floors", "phase", "phases", "ratios", "record", "share", "time", "waited")

    def __init__(self, record: RequestRecord, floors: Floors) -> None:
        self.record = record
        self.floors = floors
        self.call: CallRecord | None = record.visible
        ttft = record.ttft
        self.waited = record.duration if ttft is None else ttft
        self.phases: Mapping[str, int] = record.phases if ttft is None else record.ttft_phases
        """Of the time to the first token where there is one, else of the whole request."""
        self.ratios = Ratios(self._prefill_ratio(), self._decode_ratio())
        self.phase = ""
        self.time = 0
        self.share = 0.0

    def blame(self, phase: str, time: int, whole: int) -> None:
        """The rules of `phase`, which took `time` of `whole`, are asked next."""
        self.phase, self.time = phase, time
        self.share = time / whole if whole else 0.0

    # --- facts that a record may lack ---------------------------------------------------------

    @property
    def before_engine(self) -> int:
        """From the hand-off until the scheduler had the request; 0 where it did not say."""
        if self.call is not None and self.call.inferred:
            return 0
        handed_off, queued = (self.record.moments.get(x, 0) for x in (m.HANDED_OFF, m.QUEUED))
        return queued - handed_off if handed_off and queued else 0

    @property
    def computed(self) -> int | None:
        """Prompt tokens that the engine computed."""
        return computed_tokens(self.call) if self.call is not None else None

    @property
    def most_running(self) -> int | None:
        """The most that ran while it waited, as far as anybody looked."""
        call = self.call
        if call is None or call.running is None:
            return None
        return max(call.running, call.most_running or 0)

    @property
    def most_kv_usage(self) -> float | None:
        """The most of the KV cache in use while it waited, likewise."""
        call = self.call
        if call is None or call.kv_usage is None:
            return None
        return max(call.kv_usage, call.most_kv_usage or 0)

    @property
    def requeued(self) -> int:
        """Time spent waiting again after preemptions."""
        return self.call.requeued if self.call is not None else 0

    @property
    def stall(self) -> int:
        """What decode took beyond its usual pace."""
        return (self.call.stall or 0) if self.call is not None else 0

    @property
    def held(self) -> int:
        """Time that `send` held the app up after the first token."""
        return self.record.send_wait_total - self.record.send_wait

    @property
    def late_tail(self) -> int:
        """How long after the engine's last token the client's was sent."""
        last = self.record.moments.get(m.LAST_TOKEN_SENT, 0)
        if self.call is None or not last or not self.call.last_token:
            return 0
        return max(0, last - self.call.last_token)

    # --- floors -------------------------------------------------------------------------------

    def _prefill_ratio(self) -> float | None:
        call = self.call
        if self.floors.roofline is None or call is None:
            return None
        took = self.record.phases.get(s.PREFILL, 0) - call.requeued
        floor = self.floors.prefill(self.computed, call.usage.cached_tokens)
        return took / floor if floor and took > 0 else None

    def _decode_ratio(self) -> float | None:
        call = self.call
        if self.floors.roofline is None or call is None:
            return None
        tokens = call.usage.output_tokens
        if tokens is None or tokens < 2:  # noqa: PLR2004 - a gap needs two
            return None
        each = self.record.time_per_output_token
        if call.first_token < call.last_token:  # the engine's own pace, without delivery
            each = (call.last_token - call.first_token) / (tokens - 1)
        floor = self.floors.step(call, tokens)
        return each / floor if each and floor else None
