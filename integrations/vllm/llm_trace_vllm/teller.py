"""EngineCore's side of the news: watches requests from their queueing to their first output.

Knows vLLM's scheduler by the few names that `Request` and `SchedulerOutput` here list; imports
nothing of it. What it keeps is bounded by the requests that the scheduler itself holds.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Container, MutableMapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from llm_trace_vllm.news import Computed, News, Stamps, Transfer, write

HOLD: Final = 0.25
"""Seconds that news may wait for a step with outputs of its API server.

A message of its own makes vLLM count one more engine step, of no tokens, in its histogram
`vllm:iteration_tokens_total`; so news rides with outputs, and travels alone only where none come.
"""

_STEPS: Final = 64
"""Steps that may be in flight: with pipelines a scheduler runs ahead of the model."""
_QUEUED: Final = 1  # vllm.v1.engine.EngineCoreEventType, the same since 0.11
_SCHEDULED: Final = 2


class Request(Protocol):
    """What is read of vLLM's request."""

    request_id: str
    client_index: int
    events: Sequence[Any]
    num_prompt_tokens: int
    num_computed_tokens: int
    num_output_tokens: int

    def is_finished(self) -> bool:
        """Whether it ended, however."""


class SchedulerOutput(Protocol):
    """What is read of one step's schedule."""

    num_scheduled_tokens: dict[str, int]
    finished_req_ids: set[str]
    scheduled_new_reqs: Sequence[Any]


class _Step(NamedTuple):
    """A step whose outputs are still to come."""

    output: SchedulerOutput
    start: float
    chunks: list[tuple[Request, int]]


class Teller:
    """What is to be told, and when.

    Args:
        carry: Makes an output of vLLM's that carries the headers.
        envelope: Makes vLLM's message of one step from a list of outputs.
        loading: vLLM's status of a request that waits for its KV cache from elsewhere; None where
            it has none.
    """

    def __init__(
        self,
        carry: Callable[[dict[str, str]], Any],
        envelope: Callable[[list[Any]], Any],
        now: Callable[[], float] = time.monotonic,  # noqa: TID251 - the clock of the engine's stamps
        *,
        loading: object = None,
    ) -> None:
        self._carry = carry
        self._envelope = envelope
        self._now = now
        self._status = loading
        self._waiting: dict[str, Request] = {}
        self._prefilling: dict[str, Request] = {}
        self._untold: dict[str, Request] = {}
        self._own: dict[str, Stamps] = {}
        """Our stamps of requests of which vLLM notes none: its statistics may be off."""
        self._transfers: dict[str, Transfer] = {}
        """Of requests that still have the status, though their KV cache may be here."""
        self._kept = (self._waiting, self._prefilling, self._untold, self._own, self._transfers)
        self._steps: deque[_Step] = deque(maxlen=_STEPS)
        self._news: dict[int, News] = {}
        self._since: dict[int, float] = {}

    def now(self) -> float:
        """Monotonic seconds, as vLLM's own stamps."""
        return self._now()

    def added(self, request: Request) -> None:
        """The scheduler queued `request`."""
        key = request.request_id
        self._waiting[key] = self._untold[key] = request
        if not request.events:
            self._own[key] = Stamps(key, self._now(), 0.0)

    def loading(self, start: float) -> None:
        """A schedule, begun at `start`, is made: who waits for its KV cache, and who no more.

        Of a request that computed before, and was preempted, it is not told.
        """
        for key, request in self._waiting.items() if self._status is not None else ():
            transfer = self._transfers.get(key)
            if getattr(request, "status", None) is self._status:
                if transfer is None:
                    self._transfer(Transfer(key, self._now(), 0.0))
            elif transfer is not None:
                if not transfer.end and not request.is_finished():  # nobody said that it was here
                    self._transfer(transfer._replace(end=start))
                del self._transfers[key]

    def arrived(self, request_ids: Container[str]) -> None:
        """The KV cache of these is here; they may still wait for room."""
        for key, transfer in tuple(self._transfers.items()):
            if not transfer.end and key in request_ids:
                self._transfer(transfer._replace(end=self._now()))

    def _transfer(self, transfer: Transfer) -> None:
        self._transfers[transfer.request_id] = transfer
        self._news_for(self._waiting[transfer.request_id]).transfers.append(transfer)

    def scheduled(self, output: SchedulerOutput, start: float) -> None:
        """The scheduler, begun at `start`, decided what the next step computes."""
        if not self._waiting and not self._prefilling:
            return
        for request_id in output.finished_req_ids:
            for kept in self._kept:
                kept.pop(request_id, None)
        for new in output.scheduled_new_reqs:
            request = self._waiting.pop(new.req_id, None)
            if request is not None:
                self._begun(new.req_id, request, start)
        chunks = self._chunks(output)
        if chunks:
            self._steps.append(_Step(output, start, chunks))

    def _begun(self, request_id: str, request: Request, start: float) -> None:
        self._prefilling[request_id] = self._untold[request_id] = request
        if request_id in self._own:
            self._own[request_id] = self._own[request_id]._replace(scheduled=start)

    def _chunks(self, output: SchedulerOutput) -> list[tuple[Request, int]]:
        """The prompt tokens of this step, by request; computed tokens count it already."""
        chunks = []
        for request_id, request in self._prefilling.items():
            tokens = output.num_scheduled_tokens.get(request_id, 0)
            before = request.num_computed_tokens - tokens
            prompt = min(tokens, request.num_prompt_tokens - before)
            if prompt > 0:
                chunks.append((request, prompt))
        return chunks

    def updated(self, output: SchedulerOutput, outputs: MutableMapping[int, Any]) -> None:
        """The step is over: `outputs` by API server, to which the news is added."""
        self._tell_chunks(output, outputs)
        if self._untold:
            self._tell_stamps()
        if self._news:
            self._send(outputs)

    def _tell_chunks(self, output: SchedulerOutput, outputs: MutableMapping[int, Any]) -> None:
        step = self._take_step(output)
        if step is None:
            return
        now = self._now()
        for request, tokens in step.chunks:
            own = outputs.get(request.client_index)
            end = now if own is None else own.timestamp
            chunk = Computed(request.request_id, tokens, step.start, end)
            self._news_for(request).chunks.append(chunk)
            if _has_output(request):
                self._prefilling.pop(request.request_id, None)

    def _take_step(self, output: SchedulerOutput) -> _Step | None:
        if all(step.output is not output for step in self._steps):
            return None
        step = self._steps.popleft()
        while step.output is not output:  # a step that failed has no outputs
            step = self._steps.popleft()
        return step

    def _tell_stamps(self) -> None:
        for key, request in self._untold.items():
            stamps = self._own.get(key)
            if stamps is None:
                if _has_output(request):
                    continue  # vLLM itself told
                stamps = _noted(request)
            elif stamps.scheduled:
                del self._own[key]
            self._news_for(request).stamps.append(stamps)
        self._untold.clear()

    def _news_for(self, request: Request) -> News:
        news = self._news.get(request.client_index)
        if news is None:
            news = self._news[request.client_index] = News([], [], [])
            self._since[request.client_index] = self._now()
        return news

    def _send(self, outputs: MutableMapping[int, Any]) -> None:
        for client in tuple(self._news):
            step = outputs.get(client)
            if step is not None and step.outputs:
                step.outputs.insert(0, self._take_carrier(client))
            elif self._now() - self._since[client] >= HOLD:
                self._send_alone(client, outputs)

    def _send_alone(self, client: int, outputs: MutableMapping[int, Any]) -> None:
        carrier = self._take_carrier(client)
        step = outputs.get(client)
        if step is None:
            outputs[client] = self._envelope([carrier])
        else:
            step.outputs = [carrier]

    def _take_carrier(self, client: int) -> Any:
        return self._carry(write(self._news.pop(client)))


def _noted(request: Request) -> Stamps:
    """The first stamps of each kind that vLLM noted and has not told yet."""
    stamps = {int(event.type): event.timestamp for event in reversed(request.events)}
    return Stamps(request.request_id, stamps.get(_QUEUED, 0.0), stamps.get(_SCHEDULED, 0.0))


def _has_output(request: Request) -> bool:
    return request.num_output_tokens > 0 or request.is_finished()
