"""The logs of `truth_log` and `record_log`, read and laid side by side by vLLM's internal id."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field

from llm_trace_vllm.clock import to_ns
from llm_trace_vllm.news import CARRIER

SCHEDULED = 2


@dataclass
class Told:
    """What EngineCore did with one request; stamps in ns, windows in which our code must lie."""

    prompt: int
    queued: int
    queued_window: tuple
    scheduled: list = field(default_factory=list)
    preempted: list = field(default_factory=list)
    ticks: dict = field(default_factory=dict)
    """By the stamp of their step: how many tokens there were by then."""
    chunks: list = field(default_factory=list)
    """Tokens of the prompt in a step, window of its schedule, its number."""
    ended: bool = False

    @property
    def requeued(self):
        """Time of waiting again after preemptions."""
        again = (min(x for x in self.scheduled if x > at) for at in self.preempted)
        return sum(again) - sum(self.preempted)


def lines(path):
    """The documents of a log so far; a line that is being written is left out."""
    text = path.read_text(encoding="utf-8").rpartition("\n")[0]
    return [json.loads(line) for line in text.splitlines()]


def read_truth(path):
    """What EngineCore did, by internal id, and when each step's outputs were there."""
    told, ends = {}, {}
    for one in lines(path):
        if one["kind"] == "updated":
            ends[one["step"]] = _window(one)
        elif one["id"] != CARRIER:
            _NOTES[one["kind"]](told, one)
    return told, ends


def _window(one):
    return tuple(to_ns(stamp) for stamp in one["window"])


def _queued(told, one):
    told[one["id"]] = Told(one["prompt"], to_ns(one["at"]), _window(one))


def _scheduled(told, one):
    request = told[one["id"]]
    tokens = min(one["tokens"], request.prompt - one["start"])
    if tokens > 0 and not request.ticks:
        request.chunks.append((tokens, _window(one), one["step"]))


def _event(told, one):
    if one["type"] == SCHEDULED:
        told[one["id"]].scheduled.append(to_ns(one["at"]))


def _preempted(told, one):
    told[one["id"]].preempted.append(to_ns(one["at"]))


def _output(told, one):
    request = told[one["id"]]
    request.ended = request.ended or one["ended"]
    if one["tokens"]:
        before = max(request.ticks.values(), default=0)
        request.ticks[to_ns(one["at"])] = before + one["tokens"]


_NOTES = {
    "queued": _queued,
    "scheduled": _scheduled,
    "event": _event,
    "preempted": _preempted,
    "output": _output,
}


class Recorded:
    """What llm_trace made of it.

    Attributes:
        records: Every record.
        ticks: By internal id, the ticks that were taken until its record was closed.
        late: Those that came after that.
        forgotten: How many tokens each aborted request had when vLLM forgot it.
    """

    def __init__(self, path):
        self.records = []
        self.ticks, self.late = defaultdict(dict), defaultdict(dict)
        self.forgotten = {}
        for one in lines(path):
            getattr(self, f"_{one['kind']}")(one)

    def _record(self, one):
        self.records.append(one)

    def _tick(self, one):
        (self.late if one["late"] else self.ticks)[one["id"]][one["at"]] = one["tokens"]

    def _aborted(self, one):
        self.forgotten.setdefault(one["id"], self.tokens(one["id"]))

    def tokens(self, key):
        """How many tokens a request had, as far as was read."""
        ticks = self.ticks[key] | self.late[key]
        return max(ticks.values(), default=0)
