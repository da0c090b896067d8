"""The command line of the comparison: how sides are written, and that nothing is a traceback."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llm_trace import cli
from llm_trace.diff.errors import DiffError
from llm_trace.diff.prometheus import grown
from llm_trace.diff.side import Side, check, parse

NOW = 1_800_000_000.0
NOWHERE = ("--prometheus", "http://127.0.0.1:1")


def side(text, where=(), over="1h"):
    """Read a side at a known time."""
    return parse(text, where=where, over=over, now=NOW)


@pytest.mark.parametrize(
    ("text", "labels", "start", "end"),
    [
        ("2h..1h", {}, NOW - 7200, NOW - 3600),
        ("90m..now", {}, NOW - 5400, NOW),
        ("version=1.4", {"version": "1.4"}, NOW - 3600, NOW),
        ("version=1.4,job=a@1d..12h", {"version": "1.4", "job": "a"}, NOW - 86400, NOW - 43200),
        ('model="a@b"@2h..1h', {"model": "a@b"}, NOW - 7200, NOW - 3600),
        ("2027-01-15T07:00Z..2027-01-15T08:00:00+00:00", {}, NOW - 3600, NOW),
        ("2027-01-15T07:00..2027-01-15T08:00", {}, NOW - 3600, NOW),
        ("1799990000..1799999999.5", {}, 1_799_990_000.0, 1_799_999_999.5),
    ],
)
def test_a_side_is_labels_and_a_window(text, labels, start, end):
    """Either may be left out; times are ago, now, a date or Unix seconds."""
    assert side(text) == Side(text, labels, start, end)


def test_labels_of_both_sides_come_first():
    """And a side may say otherwise."""
    assert side("version=2", where=["job=a", "version=1"]).matchers == 'job="a",version="2"'


def test_a_label_cannot_write_promql():
    """Its value is a string, whatever is in it."""
    assert side('a=x"}) or up{b="\\').matchers == 'a="x\\"}) or up{b=\\"\\\\"'


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", None),
        ("yesterday", "neither label=value nor a window"),
        ("1h..2h", "ends before it begins"),
        ("30s..now", "shorter than a minute"),
        ("tomorrow..now", "'tomorrow' .* is no time"),
        ("2026-13-01T00:00Z..now", "is no time"),
        ("999999999w..1h", "'999999999w' .* is no time"),
        ("0001-01-01T00:00+14:00..1h", "is no time"),
        ("1h..9999-12-31T23:59-14:00", "is no time"),
        ("a=1@noon", "is no window"),
        ("a-b=1", "neither label=value"),
        ("version=", "neither label=value"),
    ],
)
def test_what_is_no_side_is_told(text, fault):
    """With how one looks; an empty one is all series of the last hour."""
    if fault is None:
        assert side(text).labels == {}
        return
    with pytest.raises(DiffError, match=fault):
        side(text)


def test_sides_that_share_requests_are_refused():
    """Another label tells them apart; windows may touch."""
    with pytest.raises(DiffError, match="overlap"):
        check(side("2h..30m"), side("1h..now"))

    check(side("2h..1h"), side("1h..now"))
    check(side("a=1"), side("a=2"))


def test_a_counter_that_was_born_counts_in_full():
    """The query says so."""
    assert grown("c{}", 300, "p") == (
        "sum by (p) ((last_over_time(c{}[300000ms]) unless c{} offset 300000ms "
        "unless last_over_time(c{}[6h] offset 300000ms) <= last_over_time(c{}[300000ms])) "
        "or increase(c{}[300000ms]))"
    )


# --- the command ------------------------------------------------------------------------------


def run(*words):
    """The status of the command, whichever way it ends."""
    try:
        return cli.main(["diff", *words])
    except SystemExit as end:
        return end.code


def test_help_teaches(capsys, monkeypatch):
    """Sides, examples, the method and statuses, within eighty columns."""
    monkeypatch.setenv("COLUMNS", "80")
    assert run("--help") == 0

    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    for word in ("version=1.4@6h..3h", "examples:", "Welch", "status:"):
        assert word in text


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["2h..1h"], "required"),
        (["2h..1h", "1h..now", *NOWHERE], "refused. Name the Prometheus with --prometheus."),
        (["2h..1h", "1h..now", "--prometheus", "nonsense"], "is no URL"),
        (["2h..1h", "1h..now", "--prometheus", "file:///etc/passwd"], "is no URL"),
        (["2h..1h", "1h..now", "--prometheus", "http://h:99999"], "is no URL"),
        (["2h..1h", "1h..now", "--blocks", "3"], "use 4 to 48"),
        (["2h..1h", "1h..now", "--token-env", "NOT_SET"], "holds no key"),
        (["2h..1h", "1h..now", "--where", "x"], "neither label=value"),
        (["a=1", "a=2", "--over", "long"], "is no time"),
    ],
)
def test_bad_words_are_told_in_a_sentence(words, fault, capsys):
    """Status 2, and nothing on stdout."""
    assert run(*words) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert fault in err
    assert "Traceback" not in err


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.text(max_size=12)
        | st.text("0123456789hdm.@=,TZ:-", max_size=16)
        | st.sampled_from(["2h..1h", "1h..now", "a=1", "--json", "--over", "--blocks", "--where"]),
        max_size=6,
    )
)
def test_any_words_are_a_comparison_or_a_sentence(capsys, words):
    """Nobody listens there: so it is status 2, or help, and never a traceback."""
    assert run(*NOWHERE, *words) in {0, 2}
    assert "Traceback" not in capsys.readouterr().err


@contextmanager
def answering(body, status=200):
    """Serve one answer to everything; its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            """Quiet."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (b"", "not as Prometheus does"),
        (b"<html>", "not as Prometheus does"),
        (b"[]", "not as Prometheus does"),
        (b"[" * 100_000, "not as Prometheus does"),
        (b'{"data": null}', "not as Prometheus does"),
        (b'{"data": {"result": [{}]}}', "not as Prometheus does"),
        (b'{"data": {"result": [{"metric": {}, "values": [[1]]}]}}', "not as Prometheus does"),
        (b'{"data": {"result": [{"metric": [], "values": [[1, "x"]]}]}}', "not as Prometheus does"),
        (b'{"data": {"result": []}}', "has no first tokens"),
    ],
)
def test_whatever_answers_there_is_told(answer, fault, capsys):
    """A page of somebody else, a proxy, an empty Prometheus."""
    with answering(answer) as url:
        assert run("2h..1h", "1h..now", "--prometheus", url) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert fault in err


def test_a_token_stays_with_the_server_that_it_is_for(capsys, monkeypatch):
    """A proxy before it may send everybody to a page to log in, which is another host's."""
    monkeypatch.setenv("PROM_TOKEN", "s3cret")
    heard = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            heard.append((self.path, self.headers["authorization"]))
            self.send_response(302)
            self.send_header("location", f"http://localhost:{self.server.server_port}/login")
            self.send_header("content-length", "0")
            self.end_headers()

        def do_POST(self):
            self.do_GET()

        def log_message(self, *_):
            """Quiet."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        assert run("2h..1h", "1h..now", "--prometheus", url, "--token-env", "PROM_TOKEN") == 2
        server.shutdown()
        thread.join()

    assert heard[:2] == [("/api/v1/query_range", "Bearer s3cret"), ("/login", None)]


def test_a_token_is_sent_and_not_shown(capsys, monkeypatch):
    """Not even when the server refuses it."""
    monkeypatch.setenv("PROM_TOKEN", "s3cret")
    with answering(json.dumps({"error": "no"}).encode(), status=401) as url:
        assert run("2h..1h", "1h..now", "--prometheus", url, "--token-env", "PROM_TOKEN") == 2

    err = capsys.readouterr().err
    assert 'answers 401: {"error": "no"}. Name a token with --token-env.' in err
    assert "s3cret" not in err
