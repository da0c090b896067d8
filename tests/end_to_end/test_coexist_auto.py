"""`opentelemetry-instrument uvicorn ...` on an app that knows nothing of us, in real processes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from programs import LOOPBACK, Program, clean_environment, eventually, free_port, listens
from scrape import scrape
from stamped_client import ask
from tap import SERVER
from uvicorn_server import CHAT, exports_to

from llm_trace import semconv as s

HERE = str(Path(__file__).parent)
COMMAND = Path(sys.executable).parent / "opentelemetry-instrument"
BODY = {"tokens": 3, "stream": True}


def serving(programs, folder, tap, factory="bare", **more):
    """The app under the command, ended with the test."""
    port = free_port()
    words = ["uvicorn", "--factory", f"apps:{factory}", "--app-dir", HERE, "--port", port]
    env = clean_environment(**exports_to(tap.endpoint, **more))
    env["PATH"] = f"{COMMAND.parent}{os.pathsep}{env['PATH']}"
    program = Program([COMMAND, *words, "--host", LOOPBACK], folder / "auto.log", env=env)
    program.port = port
    programs.append(program)
    program.ready(lambda: listens(port), "uvicorn under opentelemetry-instrument")
    return program


@pytest.mark.parametrize("factory", ["bare", "create"])
def test_an_app_is_traced_without_a_line(factory, tap, programs, tmp_path):
    """One server span with the client above it, phases below, and its metrics on both paths."""
    server = serving(programs, tmp_path, tap, factory)

    answer = ask(server.port, CHAT, BODY)

    root = tap.root(answer.trace_id)
    trace = tap.trace(answer.trace_id)
    assert answer.status == 200
    assert [root] == [span for span in trace if span.kind == SERVER]
    assert {"admission", "retrieval shelf", "chat staged", "decode"} <= {x.name for x in trace}
    eventually(lambda: s.REQUESTS.name in tap.metrics(), "no metrics came", log=server)
    pages = [scrape(server.port, path) for path in ("/metrics", "/metrics/")]
    assert [1, 1] == [page.total(s.REQUESTS.prometheus) for page in pages]


def test_it_can_be_left_out_by_the_standard_variable(tap, programs, tmp_path):
    """The other instrumentations stay, ours is not there."""
    server = serving(
        programs, tmp_path, tap, OTEL_PYTHON_DISABLED_INSTRUMENTATIONS="llm_trace,other"
    )

    answer = ask(server.port, CHAT, BODY)

    eventually(lambda: tap.trace(answer.trace_id), "no span came", log=server)
    assert not any(span.is_root for span in tap.spans())
    assert ask(server.port, "/metrics").status == 404


def test_other_exporters_of_the_command_are_no_contradiction(tap, programs, tmp_path):
    """`console` is the SDK's own business: spans go through its provider all the same."""
    console = {"OTEL_TRACES_EXPORTER": "console,otlp", "OTEL_METRICS_EXPORTER": "console"}
    server = serving(programs, tmp_path, tap, **console)

    answer = ask(server.port, CHAT, BODY)

    assert tap.root(answer.trace_id).attributes[s.OUTCOME] == "ok"
    assert scrape(server.port).total(s.REQUESTS.prometheus) == 1


def test_a_bad_setting_costs_no_request(tap, programs, tmp_path):
    """The sentence is in the log, the app serves, the others' spans arrive."""
    server = serving(programs, tmp_path, tap, LLM_TRACE_ROUTE="/x=chat")

    answer = ask(server.port, CHAT, BODY)

    assert answer.status == 200
    assert "did you mean LLM_TRACE_ROUTES? Apps are not traced." in server.text()
    eventually(lambda: tap.trace(answer.trace_id), "no span came", log=server)
    assert not any(span.is_root for span in tap.spans())
