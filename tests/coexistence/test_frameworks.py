"""Any ASGI app is traced, whatever it is made with."""

import asyncio

import pytest
from frameworks import FRAMEWORKS

from llm_trace import semconv as s
from llm_trace.testing import Recorder, drive

ASKED = b'{"model": "m", "stream": true}'


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_ledger_is_the_same_in_every_framework(name):
    """Tasks and threads of their own change nothing of whose request it is."""
    recorder = Recorder()

    server = asyncio.run(drive(FRAMEWORKS[name](), recorder, body=ASKED))

    record = recorder.record
    assert server.body.count(b"data: ") == 5
    assert (record.outcome, record.operation, record.model) == ("ok", "chat", "m")
    assert [interval.phase for interval in record.intervals] == [s.RETRIEVAL]
    assert [call.operation for call in record.calls] == ["chat"]
    assert sum(record.gaps.counts) == 2
    assert sum(record.ttft_phases.values()) == record.ttft
