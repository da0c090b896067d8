"""vLLM's scheduler as the teller sees it: requests, steps, and the outputs of a step."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

from vllm_doubles import QUEUED, SCHEDULED, Event

WAITING, LOADING, RUNNING, ENDED = "WAITING", "WAITING_FOR_REMOTE_KVS", "RUNNING", "ABORTED"


@dataclass(eq=False)
class Request:
    """A request in EngineCore."""

    request_id: str
    num_prompt_tokens: int = 10
    client_index: int = 0
    num_cached_tokens: int = 0
    num_computed_tokens: int = 0
    num_output_tokens: int = 0
    finished: bool = False
    status: str = WAITING
    events: list = field(default_factory=list)

    def __post_init__(self):
        self.num_computed_tokens = self.num_cached_tokens

    def is_finished(self):
        """Whether it ended, however."""
        return self.finished


@dataclass
class Step:
    """What the scheduler decided."""

    num_scheduled_tokens: dict
    scheduled_new_reqs: list
    finished_req_ids: set


@dataclass
class CoreOutput:
    """EngineCoreOutput, as far as the carrier uses it."""

    request_id: str
    new_token_ids: list
    trace_headers: dict | None = None


@dataclass
class CoreOutputs:
    """EngineCoreOutputs: one step's message to one API server."""

    outputs: list
    timestamp: float = 0.0


class Scheduler:
    """Gives each of the first `slots` requests a chunk of at most `budget` tokens in each step."""

    def __init__(self, vllm_config=None, *, clock=lambda: 0.0, budget=4, slots=8, log_stats=True):
        self.vllm_config = vllm_config
        self.clock = clock
        self.budget = budget
        self.slots = slots
        self.log_stats = log_stats
        self.requests = {}
        self.aborted = set()
        self.connector = None
        self.remote = set()
        """Whose KV cache is to come from elsewhere, and has not been taken from there."""
        self.finished_recving_kv_req_ids = set()

    def add_request(self, request):
        """Queue a request."""
        self.requests[request.request_id] = request
        self._event(request, QUEUED)
        return "added"

    def _event(self, request, kind):
        if self.log_stats:
            request.events.append(Event(kind, self.clock()))

    def schedule(self, *, throttle_prefills=False):
        """Decide a step: a chunk of each prompt, or one token."""
        step = Step({}, [], self.aborted)
        self.aborted = set()
        for key, request in list(self.requests.items())[: self.slots]:
            if self._loads(key, request):
                continue
            request.status = RUNNING
            if request.num_computed_tokens == request.num_cached_tokens:
                self._event(request, SCHEDULED)
                step.scheduled_new_reqs.append(SimpleNamespace(req_id=key))
            left = request.num_prompt_tokens - request.num_computed_tokens
            step.num_scheduled_tokens[key] = max(1, min(self.budget, left))
            request.num_computed_tokens += step.num_scheduled_tokens[key]
        return step

    def _loads(self, key, request):
        """Whether its KV cache is on its way, which may begin here."""
        if key in self.finished_recving_kv_req_ids:
            self.finished_recving_kv_req_ids.remove(key)
            self.remote.remove(key)
        elif key in self.remote:
            request.status = LOADING
        return key in self.remote

    def update_from_output(self, step, token):
        """Give `token` to every request whose prompt is whole."""
        outputs = {}
        for key in step.num_scheduled_tokens:
            request = self.requests.get(key)
            if request is None or request.num_computed_tokens < request.num_prompt_tokens:
                continue
            request.num_output_tokens += 1
            request.events = []
            own = outputs.setdefault(request.client_index, CoreOutputs([], self.clock()))
            own.outputs.append(CoreOutput(key, [token]))
        return outputs

    def abort(self, request_id):
        """The client left."""
        request = self.requests.pop(request_id)
        request.finished, request.status = True, ENDED
        self.aborted.add(request_id)
