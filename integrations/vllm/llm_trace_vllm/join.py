"""Joins engine requests to HTTP requests by vLLM's internal id, from two wraps on one instance.

`OutputProcessor.add_request` runs in the HTTP request's own task, so the context says which request
it is; `process_outputs` runs once a step and brings the engine core's own stamps. Both have had the
same first arguments since vLLM 0.11. No class is patched; a wrap that fails steps aside. What the
scheduler reports after the step comes from the stat logger.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

from llm_trace import context
from llm_trace import semconv as s
from llm_trace.core import engines, faults
from llm_trace.core.engine_call import EngineCall
from llm_trace.core.timeline import NO_REQUEST, Timeline
from llm_trace_vllm.clock import EngineClock
from llm_trace_vllm.facts import (
    cached_tokens,
    external_tokens,
    is_in_order,
    is_shared,
    leg_of,
    lora_of,
    operation_of,
    prompt_tokens,
    served_names,
)
from llm_trace_vllm.news import CARRIER, Transfer, read
from llm_trace_vllm.reports import Reports
from llm_trace_vllm.steps import Decoding, Steps
from llm_trace_vllm.tiers import ENGINE_EVENTS, Tier, tier_of
from llm_trace_vllm.waiting import Counts, Departures, Waiting
from llm_trace_vllm.wraps import see_after, see_before

_SWEEP_AT: Final = 256

LAG_NS: Final = 20_000_000
"""How late a step without outputs may be heard of: it brings no stamp of its end."""

_NO_STEP: Final = -1
"""Where no step came before: no call has its last token then, as none yet would have at 0."""

# vllm.v1.engine.EngineCoreEventType, the same since 0.11; compared as integers.
_EVENTS: Final = {1: "queued", 2: "scheduled", 3: "preempted"}

_now = time.monotonic_ns  # noqa: TID251 - stamps beside the engine's; no fake clock runs in vLLM


class Join:
    """What is known of one engine client, and the calls in flight on it.

    Args:
        engine: The `AsyncLLM`, or anything that looks like it.
    """

    def __init__(self, engine: Any) -> None:
        self.processor: Any = getattr(engine, "output_processor", None)
        self.tier: Tier = tier_of(self.processor)
        self.clock = EngineClock()
        self._model = next(iter(served_names(getattr(engine, "vllm_config", None))), "")
        """What it answers for where a client names no model: vLLM does not insist on one."""
        self.ranks = 1
        """How many engines the client has; their steps are told apart by the stat logger's word."""
        self._calls: dict[str, EngineCall] = {}
        self._sweep_at = _SWEEP_AT
        self._warm_since = 0
        self._asleep_since = 0
        self._shared = is_shared(engine)
        self._waiting = Waiting(in_order=is_in_order(engine))
        self._departures = Departures()
        self._steps = Steps()
        self._by_rank: dict[int, tuple[Steps, Reports]] = {}
        self._fresh: list[EngineCall] = []
        self._emitted = self._before = self._reported = 0
        self._heard = False
        """Whether outputs came since the latest report: they stamp the step that it is of."""
        self._stamp = 0.0
        self._said_unsplit = False
        if self.tier == ENGINE_EVENTS:
            see_before(self.processor, "add_request", self.added, self._give_up)
            see_after(self.processor, "process_outputs", self.processed, self._give_up)
            if callable(getattr(self.processor, "abort_requests", None)):
                see_after(self.processor, "abort_requests", self.aborted, lambda: None)
        engines.joined.add(self)

    @property
    def clock_is_foreign(self) -> bool:
        """Whether the engine's stamps were found to be of another clock."""
        return self.clock.foreign

    def _give_up(self) -> None:
        """A wrap met a surface that it does not know: no more events, less detail, no failure."""
        self.tier = tier_of(self.processor, events=False)
        self._calls.clear()

    # --- hand-off -----------------------------------------------------------------------------

    def added(
        self,
        request: Any,
        _prompt: Any = None,
        parent_req: Any = None,
        request_index: int = 0,
        *_args: Any,
        **_kwargs: Any,
    ) -> None:
        """The app server hands `request` to the engine, in the HTTP request's own context.

        Of an answer with several choices each is a request, and has the same parent.
        """
        if self.tier != ENGINE_EVENTS or request.request_id in self._calls:
            return
        timeline = context.current()
        call = None if timeline is NO_REQUEST else self._begin(timeline, request)
        if call is not None:
            call.same_prompt = parent_req is not None and request_index > 0
        self._waiting.add(request.request_id, call, self.processor.request_states)
        self._departures.came()

    def _begin(self, timeline: Timeline, request: Any) -> EngineCall:
        lora = lora_of(request)
        call = EngineCall(timeline, operation_of(request), lora or self._model, source="engine")
        call.attributes[s.ENGINE_TIER] = self.tier
        call.attributes[s.ENGINE_REQUEST_ID] = request.request_id
        if lora:
            call.attributes[s.ENGINE_LORA] = lora
        call.leg = leg_of(request)
        call.usage(input_tokens=prompt_tokens(request))
        call.begin()
        timeline.adopt_call(call)
        if len(self._calls) >= self._sweep_at:
            self._sweep()
        self._calls[request.request_id] = call
        return call

    def aborted(self, request_ids: Iterable[str] | None, *_args: Any, **_kwargs: Any) -> None:
        """vLLM gave these up: their clients left, or somebody asked for it and they get a part."""
        for request_id in request_ids or ():
            call = self._calls.get(request_id)
            if call is not None:
                call.finish_reason = "abort"

    def _sweep(self) -> None:
        """Forget aborted requests: the engine never says that they ended."""
        self._calls = {k: c for k, c in self._calls.items() if not c.timeline.closed}
        self._sweep_at = max(_SWEEP_AT, 2 * len(self._calls))

    # --- a step -------------------------------------------------------------------------------

    def processed(
        self,
        result: Any,
        outputs: Sequence[Any],
        step: float | None = None,
        *_args: Any,
        **_kwargs: Any,
    ) -> None:
        """One step of the engine: the hot loop, one dictionary look-up for each running request."""
        if self.tier != ENGINE_EVENTS:
            return
        calls = self._calls
        steps = self._steps = self._steps_of(outputs, step)
        at, before = self._over(steps, step or 0.0)
        self._emitted += len(outputs)
        for output in outputs:
            call = calls.get(output.request_id)
            if call is None:
                self._strange(output)
            elif (
                call.last_token == before
                and output.finish_reason is None
                and not output.events
                and len(output.new_token_ids) == 1
            ):
                call.generated += 1
                call.last_token = at
            else:
                self._moment(call, output, at)
        self._stopped(getattr(result, "reqs_to_abort", None) or (), at)

    def _over(self, steps: Steps, stamp: float) -> tuple[int, int]:
        """When the step and the one before it were over; its outputs may come in several parts."""
        if stamp != self._stamp or not stamp:
            self._stamp = stamp
            self._emitted, self._fresh = 0, []  # where nobody reports, too
            self._heard = True
            self._before = steps.last or _NO_STEP
            steps.add(self.clock.observe(stamp, _now()))
        return steps.last, self._before

    def _steps_of(self, outputs: Iterable[Any], stamp: float | None) -> Steps:
        """The steps of the engine that these outputs are of: new ones where nobody can say yet."""
        if self.ranks == 1 or stamp == self._stamp:  # the latter: another part of the same step
            return self._steps
        for output in outputs:
            call = self._calls.get(output.request_id)
            if call is not None and isinstance(call.ticks, Decoding):
                return call.ticks.steps
        return Steps()

    def _strange(self, output: Any) -> None:
        """An output of a request that is nobody's, or that is over here; or no output at all."""
        if output.request_id == CARRIER:
            self._emitted -= 1
            self._told(output)
            return
        self._waiting.leave(output.request_id)
        if output.finish_reason is not None:
            self._emitted -= 1
            self._departures.ended()

    def _told(self, output: Any) -> None:
        """EngineCore speaks of requests without output, where its scheduler is ours."""
        stamps, chunks, transfers = read(output)
        for request_id, queued, scheduled in stamps:
            call = self._live(request_id)
            if call is None or self.clock.contradicts(queued, call.handed_off):
                continue
            for moment, stamp in (("queued", queued), ("scheduled", scheduled)):
                if stamp:
                    call.mark(moment, self.clock.place(stamp))  # type: ignore[arg-type]
        for request_id, tokens, start, end in chunks:
            call = self._live(request_id)
            if call is not None:
                call.computed(tokens, self.clock.place(start), self.clock.place(end))
        self._transferred(transfers)

    def _transferred(self, transfers: Iterable[Transfer]) -> None:
        for request_id, start, end in transfers:
            call = self._live(request_id)
            if call is not None and not self.clock.contradicts(start, call.handed_off):
                call.transferred(self.clock.place(start), self.clock.place(end))

    def _live(self, request_id: str) -> EngineCall | None:
        call = self._calls.get(request_id)
        return None if call is None or call.timeline.closed else call

    def _moment(self, call: EngineCall, output: Any, at: int) -> None:
        """A step in which something other than one more token happened to the request."""
        preempted = False
        for event in output.events or ():
            kind = _EVENTS.get(int(event.type))
            preempted = preempted or (kind == "scheduled" and call.preempted > 0)
            if kind == "queued" and self.clock.contradicts(event.timestamp, call.handed_off):
                at = self.clock.move(at, _now())
                self._steps.add(at)
            if kind is not None:
                call.mark(kind, self.clock.place(event.timestamp))  # type: ignore[arg-type]
        if self._waiting.leave(output.request_id):
            self._first_output(call, output, at)
        tokens = len(output.new_token_ids)
        if tokens:
            self._tokens(call, tokens, at, preempted=preempted)
        if output.finish_reason is not None:
            self._emitted -= 1
            self._departures.ended()
            self._end(output.request_id, str(output.finish_reason), at)

    def _first_output(self, call: EngineCall, output: Any, at: int) -> None:
        self._fresh.append(call)
        pooled = getattr(output, "pooling_output", None) is not None
        if not (call.scheduled or pooled or output.new_token_ids):
            return  # given up before it was computed
        if not call.scheduled:
            self._say_unsplit()
        self._warm_since = self._warm_since or at
        call.cold = bool(call.scheduled) and call.scheduled < self._warm_since
        call.usage(cached_tokens=cached_tokens(output))
        call.external = external_tokens(output)
        if pooled:
            call.mark("first_token", at)  # the result of a model without tokens
        self._steps.has_prefill()

    def _say_unsplit(self) -> None:
        """Warn once of an engine that tells neither when it queued nor when it began a request."""
        if not self._said_unsplit:
            self._said_unsplit = True
            faults.log().warning(
                "llm_trace: vLLM sends no engine events, so the wait for the first token is called "
                "`engine` and not split into queue_wait and prefill. Several API servers with "
                "--disable-log-stats switch them off: start without that flag."
            )

    def _tokens(self, call: EngineCall, tokens: int, at: int, *, preempted: bool) -> None:
        if not call.first_token:
            call.mark("first_token", at)
            call.ticks = Decoding(self._steps, tokens)
        elif isinstance(call.ticks, Decoding):
            call.ticks.tick(call.last_token, tokens, preempted=preempted)
        call.generated += tokens
        call.last_token = at

    def _stopped(self, request_ids: Iterable[str], at: int) -> None:
        """vLLM found a stop string itself: what the engine still sends is for nobody."""
        for request_id in request_ids:
            self._end(request_id, "stop", at)

    def _end(self, request_id: str, reason: str, at: int) -> None:
        call = self._calls.pop(request_id, None)
        if call is not None and not call.timeline.closed:
            call.finish_reason = reason
            call.returned = call.returned or at
            call.timeline.ended(call)

    # --- what the scheduler reported after it -------------------------------------------------

    def reported(self, stats: Any, rank: int) -> None:
        """The step is over; `stats` are the scheduler's, None where another API server got them."""
        emitted, self._emitted = self._emitted, 0
        fresh, self._fresh = self._fresh, []
        heard, self._heard = self._heard, False
        reports = self._of_rank(rank, fresh)
        for call in fresh:
            call.rank = rank if self.ranks > 1 else None
            call.batch = reports.before(call.scheduled, call.queued) if call.scheduled else None
        if stats is None or self._shared:
            return
        at = self._steps.last if heard else _now()
        reports.add(stats, at)
        if self.ranks == 1:
            self._infer(stats, emitted, at if heard else at - LAG_NS)
        self._reported = at

    def _infer(self, stats: Any, emitted: int, sure: int) -> None:
        """Who waits and who computes, where the scheduler counts the requests that are alive.

        Args:
            stats: What the scheduler reported after a step.
            emitted: How many of those that it counts got tokens in it.
            sure: A time, in ns, at which the step was surely not over yet or just over.
        """
        deferred = getattr(stats, "num_skipped_waiting_reqs", 0)
        counts = Counts(stats.num_running_reqs, stats.num_waiting_reqs, deferred, emitted)
        if counts.computing > 0:
            self._steps.has_prefill()
        alive = self.processor.request_states
        known = self._departures.are_known(len(alive))
        if known and counts.computing >= 0 and counts.total <= len(alive):
            self._waiting.observe(counts, alive, before=self._reported, at=sure)

    def _of_rank(self, rank: int, fresh: Iterable[EngineCall]) -> Reports:
        found = self._by_rank.get(rank)
        if found is None:
            theirs = [steps for steps, _ in self._by_rank.values()]
            own = Steps() if self._steps in theirs else self._steps  # it reports before any output
            found = self._by_rank[rank] = (own, Reports())
        elif found[0] is not self._steps and fresh:
            found[0].add(self._steps.last)
            for call in fresh:
                if isinstance(call.ticks, Decoding):
                    call.ticks.move(found[0])
        return found[1]

    # --- sleep --------------------------------------------------------------------------------

    def slept(self, *, asleep: bool) -> None:
        """The engine fell asleep, or is awake again: those who waited for it paid for the load."""
        now = _now()
        if asleep:
            self._asleep_since = self._asleep_since or now
            return
        if not self._asleep_since:  # it ends a pause, in which everything stayed loaded
            return
        for call in self._calls.values():
            if not call.first_token and not call.timeline.closed:
                start = max(self._asleep_since, call.handed_off)
                call.timeline.adopt_interval(s.MODEL_LOAD, start, now)
        self._asleep_since = self._warm_since = 0
