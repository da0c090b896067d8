"""Joins engine requests to HTTP requests by vLLM's internal id, from two wraps on one instance.

`OutputProcessor.add_request` runs in the HTTP request's own task, so the context says which request
it is; `process_outputs` runs once a step and brings the engine core's own stamps. Both have had the
same first arguments since vLLM 0.11. No class is patched; a wrap that fails steps aside.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Final

from llm_trace import context
from llm_trace import semconv as s
from llm_trace.core import faults
from llm_trace.core.engine_call import EngineCall
from llm_trace.core.timeline import NO_REQUEST
from llm_trace_vllm.clock import EngineClock
from llm_trace_vllm.news import CARRIER, read
from llm_trace_vllm.tiers import ENGINE_EVENTS, Tier, tier_of

_MARK: Final = "_llm_trace_join"

joins: Final[weakref.WeakSet[Join]] = weakref.WeakSet()
"""The joins of this process, as long as their engines live."""
_SWEEP_AT: Final = 256

# vllm.v1.engine.EngineCoreEventType, the same since 0.11; compared as integers.
_EVENTS: Final = {1: "queued", 2: "scheduled", 3: "preempted"}

_now = time.monotonic_ns  # noqa: TID251 - stamps beside the engine's; no fake clock runs in vLLM


class Join:
    """What is known of one engine client, and the calls in flight on it.

    Args:
        engine: The `AsyncLLM`, or anything that looks like it.
    """

    def __init__(self, engine: Any) -> None:
        self.processor = getattr(engine, "output_processor", None)
        self.tier: Tier = tier_of(self.processor)
        self.clock = EngineClock()
        self._calls: dict[str, EngineCall] = {}
        self._sweep_at = _SWEEP_AT
        self._warm_since = 0
        if self.tier == ENGINE_EVENTS:
            _wrap(self.processor, "add_request", self.added, self._give_up)
            _wrap(self.processor, "process_outputs", self.processed, self._give_up)

    def _give_up(self) -> None:
        """A wrap met a surface that it does not know: no more events, less detail, no failure."""
        self.tier = tier_of(self.processor, events=False)
        self._calls.clear()

    def added(self, request: Any, *_args: Any, **_kwargs: Any) -> None:
        """The app server hands `request` to the engine, in the HTTP request's own context."""
        timeline = context.current()
        if timeline is NO_REQUEST or self.tier != ENGINE_EVENTS:
            return
        call = EngineCall(timeline, "", model_of(request), source="engine")
        call.attributes[s.ENGINE_TIER] = self.tier
        call.attributes[s.ENGINE_REQUEST_ID] = request.request_id
        call.usage(input_tokens=prompt_tokens(request))
        call.begin()
        timeline.adopt_call(call)
        if len(self._calls) >= self._sweep_at:
            self._sweep()
        self._calls[request.request_id] = call

    def _sweep(self) -> None:
        """Forget aborted requests: vLLM never says that they ended."""
        self._calls = {k: c for k, c in self._calls.items() if not c.timeline.closed}
        self._sweep_at = max(_SWEEP_AT, 2 * len(self._calls))

    def processed(
        self, outputs: Iterable[Any], step: float | None = None, *_args: Any, **_kwargs: Any
    ) -> None:
        """One step of the engine: the hot loop, one dictionary look-up for each running request."""
        if self.tier != ENGINE_EVENTS:
            return
        calls = self._calls
        at = self.clock.observe(step or 0.0, _now())
        for output in outputs:
            call = calls.get(output.request_id)
            if call is None:
                if output.request_id == CARRIER:
                    self._told(output)
                continue
            if output.events or not call.first_token or output.finish_reason is not None:
                self._moment(call, output, at)
            else:
                call.generated += len(output.new_token_ids)
                call.last_token = at

    def _told(self, output: Any) -> None:
        """EngineCore speaks of requests without output, where its scheduler is ours."""
        stamps, chunks = read(output)
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

    def _live(self, request_id: str) -> EngineCall | None:
        call = self._calls.get(request_id)
        return None if call is None or call.timeline.closed else call

    def _moment(self, call: EngineCall, output: Any, at: int) -> None:
        """A step in which something other than one more token happened to the request."""
        for event in output.events or ():
            kind = _EVENTS.get(int(event.type))
            if kind == "queued" and self.clock.contradicts(event.timestamp, call.handed_off):
                at = self.clock.move(at, _now())
            if kind is not None:
                call.mark(kind, self.clock.place(event.timestamp))  # type: ignore[arg-type]
        tokens = len(output.new_token_ids)
        if tokens:
            self._tokens(call, output, tokens, at)
        if output.finish_reason is not None:
            call.finish_reason = str(output.finish_reason)
            call.end()
            self._calls.pop(output.request_id, None)

    def _tokens(self, call: EngineCall, output: Any, tokens: int, at: int) -> None:
        if not call.first_token:
            self._warm_since = self._warm_since or at
            call.cold = bool(call.scheduled) and call.scheduled < self._warm_since
            call.usage(cached_tokens=cached_tokens(output))
            call.mark("first_token", at)
        call.generated += tokens
        call.last_token = at


def _wrap(
    processor: Any, name: str, observe: Callable[..., None], give_up: Callable[[], None]
) -> None:
    """Let `observe` see the arguments of a method of this one instance, before it runs."""
    original = getattr(processor, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            observe(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - a fault here would end every request
            give_up()
            faults.contain(f"vllm.{name}", error)
        return original(*args, **kwargs)

    setattr(processor, name, wrapped)


def model_of(request: Any) -> str:
    """The adapter's name; empty for the base model, which the HTTP request names."""
    return str(getattr(getattr(request, "lora_request", None), "lora_name", "") or "")


def prompt_tokens(request: Any) -> int | None:
    """Length of the prompt; None for prompts given as embeddings."""
    ids = getattr(request, "prompt_token_ids", None)
    return None if ids is None else len(ids)


def cached_tokens(output: Any) -> int | None:
    """Cached prompt tokens: `prefill_stats` from vLLM 0.24, `num_cached_tokens` before."""
    stats = getattr(output, "prefill_stats", None)
    source = output if stats is None else stats
    cached: int | None = getattr(source, "num_cached_tokens", None)
    return cached


def join_engine(engine: Any) -> Join:
    """The join of `engine`, made at the first call."""
    found: Join | None = getattr(engine, _MARK, None)
    if found is None:
        found = Join(engine)
        joins.add(found)
        setattr(engine, _MARK, found)
    return found
