"""Retrieval without a word from the app: real stores, instrumented by others, on real uvicorn."""

from __future__ import annotations

import pytest
from programs import eventually
from scrape import scrape
from stamped_client import ask
from uvicorn_server import CHAT, exports_to, serving

from llm_trace import semconv as s

STORES = "stores:create"
THEIRS = {"db.system", "openinference.span.kind"}


def _theirs(tap, answer):
    """The spans that the other instrumentations made in the answer's trace."""
    return [span for span in tap.trace(answer.trace_id) if THEIRS & span.attributes.keys()]


@pytest.fixture
def server(tap, programs, tmp_path):
    """The app, which exports through a provider of its own."""
    pytest.importorskip("qdrant_client", reason="needs qdrant-client")
    return serving(programs, tmp_path, STORES, **exports_to(tap.endpoint))


@pytest.mark.parametrize(
    ("by", "documents"),
    [
        pytest.param("qdrant", None, id="a client of a store, by OpenLLMetry"),
        pytest.param("langchain", 3, id="a retriever of a framework, by OpenInference"),
    ],
)
def test_retrieval_is_in_the_ledger(server, tap, by, documents):
    """Their span stands in the request's trace, and its time in the ledger, once."""
    answer = ask(server.port, CHAT, {"by": by, "stream": True})
    root = tap.root(answer.trace_id)
    theirs = eventually(lambda: _theirs(tap, answer), "their spans did not come", log=server)
    page = scrape(server.port)

    assert [b"3"] == [event["choices"][0]["delta"]["content"].encode() for event in answer.events]
    assert all(root.start <= span.start <= span.end <= root.end for span in theirs)
    assert not [x for x in tap.trace(answer.trace_id) if x.name.startswith("retrieval")]
    longest = max(span.end - span.start for span in theirs)
    took = round(root.attributes[s.TTFT_PHASE_PREFIX + s.RETRIEVAL] * 1e9)
    assert abs(took - longest) < 1_000_000
    assert documents == root.attributes.get(s.RETRIEVAL_DOCUMENTS)
    durations = f"{s.PHASE_DURATION.prometheus}_count"
    assert 1 == page.total(durations, llm_trace_phase=s.RETRIEVAL)
