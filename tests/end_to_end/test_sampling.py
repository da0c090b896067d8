"""Sampling at head and tail of real requests: spans are chosen, metrics count them all."""

from __future__ import annotations

import pytest
from scrape import scrape
from stamped_client import ask
from uvicorn_server import CHAT, exports_to, serving

from llm_trace import semconv as s

BODY = {"tokens": 2, "stream": True}
FAILING = 5
"""No body that the app can read: it answers 500."""


@pytest.mark.parametrize(
    ("env", "kept"),
    [
        ({"OTEL_TRACES_SAMPLER": "always_off"}, set()),
        ({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0"}, set()),
        ({"OTEL_TRACES_SAMPLER": "parentbased_always_off"}, {"ordinary", "failing"}),
        ({"LLM_TRACE_TAIL_SHARE": "0"}, {"failing"}),
        ({"LLM_TRACE_TAIL_SHARE": "0", "LLM_TRACE_SLOW_TTFT": "0.0001"}, {"ordinary", "failing"}),
    ],
    ids=["off", "ratio", "by the parent", "tail", "tail, slow"],
)
def test_whatever_is_sampled_metrics_count_all(env, kept, tap, programs, tmp_path):
    """By the standard variables and by the share of the tail; the client says `sampled`."""
    server = serving(programs, tmp_path, **exports_to(tap.endpoint), **env)
    asked = {}
    for name, body in (("ordinary", BODY), ("failing", FAILING), ("ordinary", BODY)):
        asked.setdefault(name, set()).add(ask(server.port, CHAT, body).trace_id)

    counted = scrape(server.port).total(s.REQUESTS.prometheus)
    server.terminate()

    expected = {trace_id for name in kept for trace_id in asked[name]}
    assert counted == 3
    assert {span.trace_id for span in tap.spans()} == expected
    roots = [span for span in tap.spans() if span.is_root]
    reasons = {span.attributes.get(s.SAMPLING_REASON) for span in roots}
    if "LLM_TRACE_TAIL_SHARE" in env:
        assert "failed" in reasons
        assert reasons <= {"failed", "slow"}
