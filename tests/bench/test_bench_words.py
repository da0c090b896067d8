"""The command line: what it teaches, what it refuses, and that nothing ends in a traceback."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from engine_app import Engine, serving
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llm_trace import cli

HERE = "http://127.0.0.1:1"
"""Where nobody listens."""


def run(*words):
    """The status of the command, whichever way it ends."""
    try:
        return cli.main(["bench", *words])
    except SystemExit as end:
        return end.code


def test_help_teaches(capsys, monkeypatch):
    """Examples, thresholds and statuses, within eighty columns."""
    monkeypatch.setenv("COLUMNS", "80")
    assert run("--help") == 0

    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    for word in ("examples:", "thresholds", "status:", "--allow-remote", "ttft_p95@prefix=new"):
        assert word in text


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ([], "required"),
        ([HERE], "does not answer"),
        (["http://example.com"], "not this machine"),
        (["nonsense"], "is no URL"),
        (["http://127.0.0.1/\x01"], "control characters"),
        (["http://127.0.0.1/\udcff"], "control characters"),
        ([HERE, "--metrics-url", "http://example.com/metrics"], "not this machine"),
        ([HERE, "--lengths", "0"], "cannot be used: use 1 to"),
        ([HERE, "--lengths", "1,,2"], "cannot be used"),
        ([HERE, "--lengths", "٣"], "cannot be used"),
        ([HERE, "--concurrency", "1025"], "use 1 to 1024"),
        ([HERE, "--requests", "9" * 5000], "cannot be used"),
        ([HERE, "--timeout", "nan"], "cannot be used"),
        ([HERE, "--timeout", "0"], "cannot be used"),
        ([HERE, "--wait", "inf"], "cannot be used"),
        ([HERE, "--objective", "speed=1"], "use one such as ttft=0.5"),
        ([HERE, "--objective", "ttft"], "use one such as ttft=0.5"),
        ([HERE, "--body", "[1]"], "is no JSON object"),
        ([HERE, "--body", "{"], "is no JSON object"),
        ([HERE, "--fail-if", "slow"], "is no threshold"),
        ([HERE, "--api-key-env", "NOT_SET"], "holds no key"),
        ([HERE, "--html", "/nowhere/report.html"], "cannot be written"),
        ([HERE, "--html", "a\0b"], "cannot be written"),
    ],
)
def test_bad_words_are_told_in_a_sentence(words, fault, capsys):
    """Status 2, and nothing on stdout."""
    assert run(*words) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert fault in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--model", "other"], "the server serves m, not other"),
        (["--lengths", "20000"], "room for 10000 tokens"),
        (["--requests", "5000"], "--max-requests allows 2,000"),
        (["--api", "completions"], "the first request failed: status 404"),
    ],
)
def test_what_the_server_cannot_do_is_told(words, fault, capsys):
    """Before the run, as far as it can be known."""
    with serving(Engine()) as url:
        assert run(url, *words) == 2

    assert fault in capsys.readouterr().err


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.text(max_size=12)
        | st.sampled_from(
            [HERE, "--json", "--lengths", "--requests", "--body", "--fail-if", "--objective"]
        )
        | st.sampled_from(["--model", "--api", "chat", "1", "1,2", "{}", "ttft=1", "failed > 0"]),
        max_size=7,
    )
)
def test_any_words_are_a_run_or_a_sentence(capsys, words):
    """Nobody listens where they lead: so it is status 2, or help, and never a traceback."""
    assert run(*words) in {0, 2}
    assert "Traceback" not in capsys.readouterr().err


HOSTILE = [
    b"",
    b"\xff\xfe\x00",
    b"<html>",
    b"[]",
    b"[" * 100_000,
    b'{"data": 5}',
    b'{"data": [5, {"id": 5}, {}]}',
    b'{"data": [{"id": "\\ud800", "max_model_len": "many"}]}',
    b'{"data": [{"id": "m", "max_model_len": -1}]}',
    b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n',
]


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream", "text/plain", ""])
@pytest.mark.parametrize("answer", HOSTILE, ids=range(len(HOSTILE)))
def test_whatever_answers_there_is_no_traceback(answer, kind, capfd, tmp_path):
    """The same bytes for the models, the tokenizer, the counters and the stream."""
    with answering(answer, kind) as url:
        words = ("--lengths", "20", "--requests", "2", "--max-seconds", "5", "--timeout", "1")
        assert run(url, *words, "--model", "m") in {0, 1, 2}
        assert run(url, *words, "--html", str(tmp_path / "report.html")) in {0, 1, 2}

    assert "Traceback" not in capfd.readouterr().err


class Quiet(ThreadingHTTPServer):
    """Says nothing of clients that hang up."""

    def handle_error(self, *_):
        """They may."""


@contextmanager
def answering(body, kind):
    """Serve one answer to everything; its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            self.do_GET()

        def log_message(self, *_):
            """Quiet."""

    with Quiet(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_ctrl_c_shows_what_was_measured():
    """The cells up to now, and the status of an interrupted program."""
    engine = Engine(faults=[*[""] * 20, *["hangs"] * 1000])
    with serving(engine) as url:
        command = [sys.executable, "-m", "llm_trace.cli", "bench", url, "--lengths", "40"]
        program = subprocess.Popen(
            [*command, "--requests", "8", "--concurrency", "1,2"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        while engine.faults[0] != "hangs":
            time.sleep(0.01)
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=30)

    assert "Traceback" not in err
    assert program.returncode == cli.INTERRUPTED
    if sys.version_info >= (3, 11):  # before, asyncio throws everything away
        assert "NOT COMPLETE: it was interrupted." in out
        assert "40 new" in out
