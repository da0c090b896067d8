"""vLLM as its integration sees it: an engine client, an output processor, what a step brings."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

from llm_trace import context
from llm_trace.core.dispatch import Dispatch
from llm_trace.core.timeline import Timeline
from llm_trace.testing import FakeClock

QUEUED, SCHEDULED, PREEMPTED = 1, 2, 3
SECOND = 10**9


@dataclass
class Event:
    """An engine-core event; vLLM's type is an IntEnum."""

    type: int
    timestamp: float


@dataclass
class Output:
    """What one step brought for one engine request, as vLLM from 0.24 on has it."""

    request_id: str
    new_token_ids: list = field(default_factory=lambda: [7])
    events: list | None = None
    finish_reason: object = None
    prefill_stats: object = None


class Processor:
    """The output processor: notes what reaches it."""

    def __init__(self):
        self.request_states = {}
        self.heard = []

    def add_request(self, request, prompt=None, parent_req=None, request_index=0, queue=None):
        """Take a request."""
        self.heard.append(("added", request.request_id, request_index))
        return "added"

    def process_outputs(self, outputs, engine_core_timestamp=None, iteration_stats=None):
        """Take a step."""
        self.heard.append(("step", [output.request_id for output in outputs]))
        return "processed"

    def abort_requests(self, request_ids, internal=None):
        """Give requests up, by their clients' ids or by internal ones."""
        self.heard.append(("aborted", list(request_ids)))
        return [name if internal else f"{name}-internal" for name in request_ids]


class Engine:
    """The engine client: `AsyncLLM`, or something with less to offer."""

    def __init__(self, processor=None):
        if processor is not None:
            self.output_processor = processor


def request(request_id, prompt=(1, 2, 3), **more):
    """An engine request."""
    return SimpleNamespace(request_id=request_id, prompt_token_ids=list(prompt), **more)


def seconds(ns):
    """A stamp as the engine core gives it."""
    return ns / 1e9


class Http:
    """A live HTTP request: its timeline, entered as the middleware enters it."""

    def __init__(self, clock=None, **state):
        self.fake = clock or FakeClock()
        self.timeline = Timeline(self.fake.clock)
        self.timeline.state = state
        self.dispatch = Dispatch()
        self.dispatch.live.add(self.timeline)

    def __enter__(self):
        self._token = context.enter(self.timeline)
        return self

    def __exit__(self, *_):
        context.leave(self._token)

    @property
    def call(self):
        """Its only engine call."""
        (call,) = self.timeline.calls
        return call
