"""What llm_trace recorded inside vLLM's API server: every record, and every tick as it was taken.

`--middleware record_log.RecordLog`: passes everything on. One JSON line each, in the file that the
variable RECORD_LOG names.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from vllm.v1.engine.output_processor import OutputProcessor

from llm_trace import semconv as s
from llm_trace.core.dispatch import Dispatch
from llm_trace.core.engine_call import EngineCall
from llm_trace_vllm import join

_SLOT = EngineCall.last_token
_LOG = Path(os.environ["RECORD_LOG"]).open("a", buffering=1, encoding="utf-8")  # noqa: SIM115 - as long as the server


def _note(kind, **facts):
    _LOG.write(json.dumps({"kind": kind, **facts}) + "\n")


class WitnessedCall(EngineCall):
    """Notes each stamp of a token."""

    @property
    def last_token(self):
        """As the call has it."""
        return _SLOT.__get__(self)

    @last_token.setter
    def last_token(self, at):
        _SLOT.__set__(self, at)
        if at:
            key, late = self.attributes[s.ENGINE_REQUEST_ID], self.timeline.closed
            _note("tick", id=key, at=at, tokens=self.generated, late=late)


class RecordLog:
    """Passes everything on."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        """Serve one scope."""
        await self.app(scope, receive, send)


def _deliver(self, record, deliver=Dispatch.deliver):
    calls = [
        call._asdict() | {"usage": call.usage._asdict(), "id": call.attributes[s.ENGINE_REQUEST_ID]}
        for call in record.calls
    ]
    facts = {
        name: getattr(record, name)
        for name in ("received", "finished", "outcome", "error_type", "last_phase", "phases")
    }
    trace_id = f"{record.identity.trace_id:032x}"
    _note("record", trace_id=trace_id, calls=calls, usage=record.usage._asdict(), **facts)
    deliver(self, record)


def _abort(self, *args, abort=OutputProcessor.abort_requests, **kwargs):
    """vLLM forgets requests: what their engine still brings is passed over."""
    aborted = abort(self, *args, **kwargs)
    for key in aborted:
        _note("aborted", id=key)
    return aborted


OutputProcessor.abort_requests = _abort
join.EngineCall = WitnessedCall
Dispatch.deliver = _deliver
