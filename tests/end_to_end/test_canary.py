"""Canaries in everything that a client and an engine say: by default none leaves the process."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from programs import eventually
from stamped_client import ask
from uvicorn_server import exports_to, serving

from llm_trace import semconv as s

SONG = "canary-7f3a"
"""Sung by client and engine wherever there is room for text of theirs."""

EVERYTHING = {"LLM_TRACE_FLIGHT_RECORDER": "50", "LLM_TRACE_SLOW_TTFT": "0.000001"}
"""What else can tell of requests, switched on."""

HEADERS = {
    "authorization": f"Bearer {SONG}",
    "cookie": f"session={SONG}",
    "x-api-key": SONG,
    "user-agent": SONG,
    "x-forwarded-for": SONG,
    "x-request-id": SONG,
    "baggage": f"user={SONG}",
    "x-llm-trace-ledger": "1",
}
MESSAGES = [
    {"role": "system", "content": SONG},
    {"role": "user", "content": [{"type": "text", "text": SONG}, {"type": SONG}]},
    {"role": "tool", "tool_call_id": SONG, "content": SONG},
]
ASKED = {
    "messages": MESSAGES,
    "prompt": SONG,
    "input": [SONG],
    "user": SONG,
    "metadata": {SONG: SONG},
    "tools": [{"type": "function", "function": {"name": SONG}}],
}
HOWS = ("stream", "plain", "error", "crash", "breaks", "text", "garbage")
PATHS = ("/v1/chat/completions", "/v1/embeddings", "/other")


def sing(port):
    """Every way to ask on every kind of path: the trace ids, and how the answers sounded."""
    answers = []
    for path in PATHS:
        for how in HOWS:
            body = {**ASKED, "model": "m", "stream": how != "plain", "how": how, "song": SONG}
            target = f"{path}?key={SONG}&q={quote(SONG)}"
            try:
                answers.append(ask(port, target, body, headers=HEADERS))
            except EOFError:
                assert how == "breaks"
    answers.append(ask(port, f"{PATHS[0]}?{SONG}", f"{{{SONG}".encode(), headers=HEADERS))
    return answers


def everything_told(server, tap):
    """All that left the process: spans, metrics, both pages, and its log."""
    asked = len(PATHS) * len(HOWS) + 1
    eventually(lambda: sum(x.is_root for x in tap.spans()) >= asked - len(HOWS), "no roots")
    eventually(lambda: s.REQUESTS.name in tap.metrics(), "no metrics")
    pages = [
        ask(server.port, "/metrics", headers={"accept": kind}).body.decode()
        for kind in ("text/plain", "application/openmetrics-text; version=1.0.0")
    ]
    flights = ask(server.port, "/debug/llm_trace").body.decode()
    assert s.OUTCOME in flights
    return {
        "otlp": tap.program.text(),
        "flight recorder": flights,
        "classic page": pages[0],
        "openmetrics page": pages[1],
        "log": "\n".join(line for line in server.text().splitlines() if not _apps_own(line)),
    }


def _apps_own(line):
    """What uvicorn logs of an exception of the app, and the app's own raise, are not ours."""
    return "LookupError" in line or "raise" in line


def test_no_canary_leaves_by_default(tap, programs, tmp_path):
    """Spans, metrics, pages and log know nothing of what was asked and answered."""
    server = serving(programs, tmp_path, "singer:create", **EVERYTHING, **exports_to(tap.endpoint))

    answers = sing(server.port)

    assert any(SONG in answer.body.decode("latin-1") for answer in answers)
    told = everything_told(server, tap)
    assert [] == [place for place, text in told.items() if SONG in text]


@pytest.mark.parametrize("value", ["true", "SPAN_ONLY"])
def test_captured_content_is_on_root_spans_alone(value, tap, programs, tmp_path):
    """Asked for by the standard variable; even then no header and no query leaves."""
    env = exports_to(tap.endpoint, OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=value)
    server = serving(programs, tmp_path, "singer:create", **EVERYTHING, **env)

    sing(server.port)

    told = everything_told(server, tap)
    assert ["otlp"] == [place for place, text in told.items() if SONG in text]
    named = {
        (span.is_root, key)
        for span in tap.spans()
        for key, kept in span.attributes.items()
        if SONG in str(kept)
    }
    assert {(True, s.INPUT_MESSAGES), (True, s.OUTPUT_MESSAGES)} == named
