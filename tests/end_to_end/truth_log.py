"""What really happened inside vLLM, noted by EngineCore's own scheduler and by nobody of ours.

`--scheduler-cls truth_log.scheduler`: the scheduler that llm_trace makes, and around it one that
notes every queueing, step, preemption and output, with stamps of its own beside vLLM's. One JSON
line each, in the file that the variable TRUTH_LOG names.
"""

from __future__ import annotations

import json
import os
import time
from itertools import count
from pathlib import Path

import llm_trace_vllm

_now = time.monotonic


def scheduler(*args, **kwargs):
    """The factory."""
    made = llm_trace_vllm.scheduler(*args, **kwargs)
    made.__class__ = _noting(type(made), Log(Path(os.environ["TRUTH_LOG"])))
    return made


class Log:
    """The file, and the numbers of the steps that are in flight."""

    def __init__(self, path):
        self._file = path.open("a", buffering=1, encoding="utf-8")
        self._numbers = count()
        self._steps = {}

    def note(self, kind, **facts):
        """Write one line."""
        self._file.write(json.dumps({"kind": kind, **facts}) + "\n")

    def queued(self, request, window):
        """A request was queued."""
        told = request.events[-1].timestamp
        key, prompt = request.request_id, request.num_prompt_tokens
        self.note("queued", id=key, prompt=prompt, at=told, window=window)

    def scheduled(self, step, requests, window):
        """A step was decided."""
        number = self._steps[id(step)] = next(self._numbers)
        for key, tokens in step.num_scheduled_tokens.items():
            request = requests[key]
            start = request.num_computed_tokens - tokens
            self.note("scheduled", id=key, step=number, window=window, tokens=tokens, start=start)
            for event in request.events:
                if window[0] <= event.timestamp <= window[1]:
                    self.note("event", id=key, type=int(event.type), at=event.timestamp)

    def updated(self, step, outputs, window):
        """A step's outputs are there."""
        self.note("updated", step=self._steps.pop(id(step)), window=window)
        for own in outputs.values():
            for output in own.outputs:
                facts = {"id": output.request_id, "tokens": len(output.new_token_ids)}
                self.note(
                    "output", at=own.timestamp, ended=output.finish_reason is not None, **facts
                )


def _noting(base, log):
    class NotingScheduler(base):
        """Notes what `base` does."""

        def add_request(self, request, *args, **kwargs):
            before = _now()
            result = super().add_request(request, *args, **kwargs)
            log.queued(request, (before, _now()))
            return result

        def schedule(self, *args, **kwargs):
            before = _now()
            step = super().schedule(*args, **kwargs)
            log.scheduled(step, self.requests, (before, _now()))
            return step

        def _preempt_request(self, request, timestamp, *args, **kwargs):
            log.note("preempted", id=request.request_id, at=timestamp)
            return super()._preempt_request(request, timestamp, *args, **kwargs)

        def update_from_output(self, step, *args, **kwargs):
            before = _now()
            outputs = super().update_from_output(step, *args, **kwargs)
            log.updated(step, outputs, (before, _now()))
            return outputs

    return NotingScheduler
