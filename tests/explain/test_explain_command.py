"""`llm-trace explain` as a user meets it: vLLM's spans, ours, broken ones and foreign ones."""

from __future__ import annotations

import base64
import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from told_requests import Told, rag

from llm_trace.cli import main

NATIVE = Path(__file__).parent / "vllm-0.32-native-spans.json"
QUEUED = "65297f47cf671d730a12eccb12bd9bf3"


@pytest.fixture
def run(capsys):
    """A function that runs the command: status, output, errors."""

    def run(*args):
        status = main(["explain", *map(str, args)])
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def ours(tmp_path):
    """A file with one request of ours."""
    one = Told()
    one.serve(*rag())
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(one.document))
    return file


def spans_of(file):
    """The spans of a file of one resource."""
    return json.loads(file.read_text())["resourceSpans"][0]["scopeSpans"][0]["spans"]


def test_a_request_of_ours_is_told_whole(run, ours):
    """Waterfall, ledger, verdict and definitions, within 80 columns."""
    status, out, _ = run(ours)
    trace_id = spans_of(ours)[0]["traceId"]

    assert status == 0
    assert max(map(len, out.splitlines())) <= 80
    assert out.replace(trace_id, "ID") == (Path(__file__).parent / "explained.txt").read_text()


def test_vllms_own_span_is_told_with_what_it_lacks(run):
    """Durations without places: a ledger with one rest, and no number of the client's."""
    status, out, err = run(NATIVE)

    assert status == 0
    assert max(map(len, out.splitlines())) <= 80
    assert "told by vLLM's own span" in out
    assert "  queue_wait                        1,103.3 ms     92%" in out
    assert "  llm_trace                    -  request received" in out
    assert "  vLLM histogram      1,205.7 ms  API server's arrival" in out
    assert "of 4 traces with requests this is the one with the slowest" in err


def test_a_trace_is_chosen_from_a_list(run):
    """The slowest first; any of them by its id."""
    _, listed, _ = run(NATIVE, "--list")
    [_, first, *others] = listed.splitlines()
    _, out, _ = run(NATIVE, "--trace-id", others[-1].split()[0].upper())

    assert first.split() == [QUEUED, "1,205.7", "queue"]
    assert len(others) == 3
    assert f"trace {others[-1].split()[0]}" in out


def test_json_has_a_schema_and_the_same_numbers(run, ours):
    """For a program."""
    _, out, _ = run(ours, "--json")

    found = json.loads(out)
    [request] = found["requests"]
    assert found["schema"] == "llm-trace.explain/1"
    assert request["ttft"] == pytest.approx(sum(request["ttft_phases"].values()))
    assert request["verdict"]["cause"] == "queue"
    assert request["definitions"]["ttft"][0]["seconds"] == request["ttft"]


def test_floors_can_be_asked_for(run, ours):
    """The verdict is found anew, against the device that is named."""
    _, out, _ = run(ours, "--device", "L4", "--model-config", "Llama-3.1-8B")

    assert "found from its spans" in out
    assert "times its estimated floor" in out


def test_a_file_of_the_collector_is_read_line_by_line(run, tmp_path, ours):
    """Also while its last line is being written."""
    line = json.dumps(json.loads(ours.read_text()))
    file = tmp_path / "spans.jsonl"
    file.write_text(f"{line}\n{NATIVE.read_text().replace(chr(10), '')}\n{line[:100]}")

    status, out, err = run(file, "--list")
    assert (status, len(out.splitlines())) == (0, 1 + 1 + 4)
    status, _, err = run(file)
    assert "1 spans could not be read" in err


def tempo(document):
    """How Tempo's API writes it: another key, and ids in base64."""
    text = json.dumps(document).replace('"resourceSpans"', '"batches"')
    return json.loads(re.sub(r'"((?:[0-9a-f]{16}){1,2})"', _base64, text))


def _base64(match):
    return f'"{base64.b64encode(bytes.fromhex(match[1])).decode()}"'


def jaeger(document):
    """How Jaeger's API writes it."""
    spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    return {
        "data": [
            {
                "traceID": spans[0]["traceId"],
                "processes": {"p1": {"serviceName": "app"}},
                "spans": [_jaeger(span) for span in spans],
            }
        ]
    }


def _jaeger(span):
    start, end = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
    parent = span.get("parentSpanId")
    return {
        "traceID": span["traceId"],
        "spanID": span["spanId"],
        "operationName": span["name"],
        "processID": "p1",
        "references": [{"refType": "CHILD_OF", "spanID": parent}] if parent else [],
        "startTime": start // 1000,
        "duration": (end - start) // 1000,
        "tags": [
            {"key": x["key"], "value": next(iter(x["value"].values()))} for x in span["attributes"]
        ],
    }


@contextmanager
def serving(body, status=200, heard=None):
    """An HTTP server that gives `body` and keeps the paths that were asked for, and the headers."""
    asked = []
    heard = [] if heard is None else heard

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            heard.append(self.headers)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("dress", [tempo, jaeger])
def test_a_trace_id_is_asked_of_tempo_or_jaeger(run, ours, dress):
    """Both answer at the same path; the ledger is the same."""
    document = json.loads(ours.read_text())
    trace_id = document["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["traceId"]
    with serving(json.dumps(dress(document)).encode()) as (url, asked):
        _, out, _ = run(trace_id, "--api", f"{url}/", "--json")

    assert asked == [f"/api/traces/{trace_id}"]
    assert json.loads(out)["requests"][0]["ttft"] == 0.941


def test_an_id_without_its_leading_zeros_is_the_same(run, ours, tmp_path):
    """As Jaeger's screen shows one of sixteen: of a trace to ask for, and of one in a file."""
    text = ours.read_text()
    trace_id = json.loads(text)["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["traceId"]
    text = text.replace(trace_id, f"0{trace_id[1:]}")
    file = tmp_path / "trace.json"
    file.write_text(text)
    with serving(text.encode()) as (url, asked):
        status, _, _ = run(trace_id[1:].upper(), "--api", url, "--trace-id", trace_id[1:])

    assert (status, asked) == (0, [f"/api/traces/0{trace_id[1:]}"])
    assert run(file, "--trace-id", trace_id[1:])[0] == 0


@pytest.mark.parametrize("wrapper", ["trace", "result"])
def test_an_answer_in_a_wrapper_is_read(run, ours, wrapper):
    """Tempo's second API and Jaeger's third put one around the same document."""
    with serving(json.dumps({wrapper: json.loads(ours.read_text())}).encode()) as (url, _):
        status, out, _ = run(f"{url}/api/v3/traces/{'a' * 32}", "--json")

    assert status == 0
    assert json.loads(out)["requests"][0]["ttft"] == 0.941


def test_a_url_is_asked_as_it_is(run, ours):
    """Such as the page of the flight recorder."""
    with serving(ours.read_bytes()) as (url, asked):
        status, _, _ = run(f"{url}/debug/llm_trace")

    assert (status, asked) == (0, ["/debug/llm_trace"])


@pytest.mark.parametrize(
    ("args", "hint"),
    [(("a" * 32, "--api", "{}"), "was it sampled"), (("{}",), "LLM_TRACE_FLIGHT_RECORDER is set")],
)
def test_what_is_not_there_is_said_with_what_may_be_missing(run, args, hint):
    """With the status: a trace that was not kept, or a flight recorder that is off."""
    with serving(b"", 404) as (url, _):
        status, _, err = run(*(arg.format(url) for arg in args))

    assert status == 2
    assert "answered 404 Not Found" in err
    assert hint in err


def test_a_server_is_asked_with_a_key_and_headers(run, ours, monkeypatch):
    """As a Tempo behind authentication, with several tenants, wants to be."""
    monkeypatch.setenv("TEMPO_TOKEN", "secret")
    heard = []
    with serving(ours.read_bytes(), heard=heard) as (url, _):
        words = ("--token-env", "TEMPO_TOKEN", "--header", "X-Scope-OrgID: team")
        status, _, _ = run("a" * 32, "--api", url, *words)

    (asked,) = heard
    assert (status, asked["authorization"], asked["x-scope-orgid"]) == (0, "Bearer secret", "team")


def test_a_server_that_wants_a_key_is_told_apart(run):
    """With the option that carries one."""
    with serving(b"", 401) as (url, _):
        status, _, err = run("a" * 32, "--api", url)

    assert status == 2
    assert "--token-env" in err


def test_a_password_in_an_address_is_not_shown(run):
    """Nor is it sent: the address is refused."""
    status, _, err = run("a" * 32, "--api", "http://me:hidden@127.0.0.1:1")

    assert status == 2
    assert "name a variable with --token-env" in err
    assert "hidden" not in err


FOREIGN = {
    "resourceSpans": [
        {
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]},
            "scopeSpans": [
                {
                    "spans": [
                        {
                            "traceId": "a" * 32,
                            "spanId": "b" * 16,
                            "name": "GET /cart",
                            "startTimeUnixNano": "1",
                            "endTimeUnixNano": "2",
                        }
                    ]
                }
            ],
        }
    ]
}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "this is no JSON"),
        ("{", "this is no JSON"),
        ("null", "there is no span in it"),
        ("{}", "expected OTLP JSON"),
        ('{"resourceSpans": [{"scopeSpans": [{"spans": [{}, 5]}]}]}', "2 things in it were no"),
        (json.dumps(FOREIGN), "1 spans of shop and no request of an inference server"),
        ("[" * 100_000, "this is no JSON"),
    ],
)
def test_what_cannot_be_explained_is_refused_with_the_reason(run, tmp_path, text, says):
    """One sentence, status 2."""
    file = tmp_path / "x.json"
    file.write_text(text)
    status, out, err = run(file)

    assert (status, out, err.count("\n")) == (2, "", 1)
    assert says in err


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("/nowhere",), "cannot be read"),
        (("a" * 32,), "--api http://tempo:3200"),
        (("a" * 32, "--api", "file:///etc"), "no URL: use one such as http://tempo:3200"),
        (("http://127.0.0.1:1/x",), "cannot be read"),
        (("http://[bad",), "cannot be read"),
        ((NATIVE, "--trace-id", "0"), "there is no trace '0'"),
        ((NATIVE, "--device", "L4"), "both --device and --model-config"),
    ],
)
def test_a_wrong_question_is_answered_by_what_to_do(run, args, says):
    """One sentence, status 2."""
    status, _, err = run(*args)

    assert status == 2
    assert says in err


def test_control_characters_of_strangers_do_not_reach_the_terminal(run, tmp_path, ours):
    """A span's name is anybody's text."""
    file = tmp_path / "evil.json"
    file.write_text(ours.read_text().replace("chat qwen", "\\u001b[2Jchat"))
    _, out, _ = run(file)

    assert "\x1b" not in out


# --- anything at all ----------------------------------------------------------------------------

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
junk = st.recursive(scalars, lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(), x))
quiet = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)


@quiet
@given(body=st.binary() | junk.map(lambda x: json.dumps(x).encode()))
def test_no_file_makes_a_traceback(run, tmp_path, body):
    """Whatever is in it."""
    file = tmp_path / "any"
    file.write_bytes(body)

    assert run(file)[0] in {0, 2}


def mutate(value, draw):
    """`value` with some of its leaves and branches replaced."""
    if draw(st.integers(0, 40)) == 0:
        return draw(junk)
    if isinstance(value, dict):
        return {k: mutate(v, draw) for k, v in value.items() if draw(st.integers(0, 60))}
    if isinstance(value, list):
        return [mutate(v, draw) for v in value]
    return value


@quiet
@given(data=st.data())
def test_no_damage_to_a_real_trace_makes_a_traceback(run, tmp_path, data):
    """Fields missing, of other types, or of other values: an answer or a refusal."""
    file = tmp_path / "damaged.json"
    file.write_text(json.dumps(mutate(json.loads(NATIVE.read_text()), data.draw)))

    for more in ((), ("--json",), ("--list",)):
        assert run(file, *more)[0] in {0, 2}


def test_a_span_that_is_its_own_ancestor_is_left_out(run, tmp_path):
    """No walk of the tree goes round."""
    document = json.loads(NATIVE.read_text())
    spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    spans[0]["parentSpanId"] = spans[0]["spanId"]
    file = tmp_path / "loop.json"
    file.write_text(json.dumps(document))

    assert run(file, "--trace-id", spans[0]["traceId"])[0] in {0, 2}
