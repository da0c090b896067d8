"""`llm-trace probe` against servers that do everything but answer well."""

import json
import socket
import ssl
import threading
from contextlib import contextmanager, suppress

import pytest

from llm_trace.cli import main
from llm_trace.core import inband

OK = b"HTTP/1.1 200 OK\r\n"
SSE = OK + b"content-type: text/event-stream\r\nconnection: close\r\n"
JSON = OK + b"content-type: application/json\r\ncontent-length: 2\r\n"
TOLD = {"admission": 1_000_000, "prefill": 2_000_000}


def token(word="a"):
    """An event with a token."""
    choice = {"index": 0, "delta": {"content": word}}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


@contextmanager
def serving(*answers, secured=None):
    """A server that gives each connection the next answer, and hangs up.

    With `secured`, a TLS context, it speaks https.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            for answer in answers:
                with suppress(OSError):
                    connection, _ = listener.accept()
                    if secured is not None:
                        connection = secured.wrap_socket(connection, server_side=True)
                    with connection:
                        asked.append(_request(connection))
                        connection.sendall(answer)

        asked = []
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        scheme = "http" if secured is None else "https"
        yield f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/ask", asked
        thread.join(10)


def _request(connection):
    data = b""
    while b"\r\n\r\n" not in data:
        data += _more(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    sizes = [x for x in head.lower().split(b"\r\n") if x.startswith(b"content-length:")]
    while sizes and len(body) < int(sizes[0].partition(b":")[2]):
        body += _more(connection)
    return head + b"\r\n\r\n" + body


def _more(connection):
    """What comes next; a client that hangs up before its request is whole is an error."""
    data = connection.recv(65_536)
    if not data:
        raise ConnectionResetError
    return data


def probed(answer, capsys, *words):
    """One request to a server that gives `answer`: the status, and the request for machines."""
    with serving(answer) as (url, _):
        status = main(["probe", url, "--requests", "1", "--json", "--timeout", "5", *words])
    document = json.loads(capsys.readouterr().out)
    return status, document["requests"][0]


def test_the_servers_own_numbers_are_taken_off_the_clients(capsys):
    """Network is what the client waited beyond what the server says of itself."""
    lines = inband.comment(inband.FIRST_TOKEN, TOLD), inband.comment(inband.END, TOLD)
    answer = (
        SSE + b"x-llm-trace-ledger: 1\r\n\r\n" + lines[0] + token() + lines[1] + b"data: [DONE]\n\n"
    )

    status, one = probed(answer, capsys)

    assert (0, None) == (status, one["failure"])
    assert {"admission": 0.001, "prefill": 0.002} == one["server"]["ttft_phases_seconds"]
    for number in ("ttft_seconds", "total_seconds"):
        assert one["network"][number] == pytest.approx(one["client"][number] - 0.003)


def test_a_comment_that_nobody_announced_is_no_ledger(capsys):
    """An app may write such a line of its own; without the header it is not believed."""
    answer = SSE + b"\r\n" + inband.comment(inband.FIRST_TOKEN, TOLD) + token()

    _, one = probed(answer, capsys)

    assert one["server"]["ttft_seconds"] is None
    assert one["network"]["ttft_seconds"] is None
    assert one["client"]["ttft_seconds"] is not None


def test_an_answer_in_one_piece_has_a_total_and_no_first_token(capsys):
    """`Server-Timing` says what the server took."""
    timing = f"server-timing: {inband.server_timing(TOLD)}\r\n\r\n".encode()

    status, one = probed(JSON + timing + b"{}", capsys)

    assert 0 == status
    assert one["client"]["ttft_seconds"] is None
    assert one["network"]["total_seconds"] == pytest.approx(one["client"]["total_seconds"] - 0.003)


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (b"HTTP/1.1 503 Busy\r\n\r\n come back\nlater ", "status 503: come back later"),
        (b"HTTP/1.1 500 Oh\r\n\r\n\xff", "status 500: �"),
        (b"", "broken off: RemoteDisconnected"),
        (b"hello", "broken off: BadStatusLine"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc", "broken off: IncompleteRead"),
        (SSE + b"transfer-encoding: chunked\r\n\r\nzz\r\n", "broken off: IncompleteRead"),
        (
            SSE + b'\r\ndata: {"error": {"type": "overloaded"}}\n\n',
            "an error in the stream: overloaded",
        ),
    ],
)
def test_what_is_no_answer_is_named(answer, failure, capsys):
    """Refusals, hang-ups and nonsense: status 1, the reason beside the trace id, no traceback."""
    status, one = probed(answer, capsys)

    assert (1, failure) == (status, one["failure"])
    assert 32 == len(one["trace_id"])


def test_a_server_that_never_answers_is_given_up(capsys):
    """A wait has a limit."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/ask"
        status = main(["probe", url, "--requests", "1", "--json", "--timeout", "0.05"])

    one = json.loads(capsys.readouterr().out)["requests"][0]
    assert (1, "broken off: timeout") == (status, one["failure"])


def test_the_model_is_the_first_that_the_server_lists(capsys):
    """A server that lists none is asked without one."""
    listed = b'{"data": [{"id": "qwen"}]}'
    head = OK + b"content-length: %d\r\n\r\n" % len(listed)
    for models, expected in ((head + listed, "qwen"), (OK + b"\r\n[]", None)):
        with serving(models, SSE + b"\r\n" + token()) as (url, asked):
            main(["probe", url.removesuffix("/ask"), "--requests", "1", "--json"])
        body = json.loads(asked[1].partition(b"\r\n\r\n")[2])

        assert asked[0].startswith(b"GET /v1/models ")
        assert asked[1].startswith(b"POST /v1/chat/completions ")
        assert expected == body.get("model")
    capsys.readouterr()


def test_a_key_is_sent_and_never_shown(capsys, monkeypatch):
    """It comes from a variable, and stands in nothing that is printed."""
    monkeypatch.setenv("PROBE_KEY", "s3cret")
    with serving(SSE + b"\r\n" + token()) as (url, asked):
        main(["probe", url, "--requests", "1", "--api-key-env", "PROBE_KEY"])

    shown = capsys.readouterr()
    assert b"authorization: Bearer s3cret" in asked[0]
    assert "s3cret" not in shown.out + shown.err


def test_the_screen_says_what_it_does_not_know(capsys):
    """Without the server's numbers the network is unknown, not zero; the page has 80 columns."""
    with serving(*[SSE + b"\r\n" + token() * 40] * 2) as (url, _):
        status = main(["probe", url, "--requests", "2"])

    lines = capsys.readouterr().out.splitlines()
    assert 0 == status
    assert any("the network is unknown" in line for line in lines)
    assert any("40 tokens" in line for line in lines)
    assert 2 == sum(line.startswith("trace ") for line in lines)
    assert max(map(len, lines)) <= 80


def test_a_server_that_speaks_no_tls_is_said_in_a_sentence(capsys):
    """`https` for a server of plain http: status 2."""
    with serving(b"HTTP/1.1 400 Bad\r\n\r\n") as (url, _):
        assert 2 == main(["probe", url.replace("http:", "https:"), "--timeout", "0.1"])

    assert "does not answer" in capsys.readouterr().err


def test_an_answer_without_end_is_cut_off(capsys, monkeypatch):
    """What is kept of one answer has a bound."""
    monkeypatch.setattr("llm_trace.probe.wire.MOST_BYTES", 1_000)

    status, one = probed(SSE + b"\r\n" + token() * 100, capsys)

    assert (1, "broken off: ValueError") == (status, one["failure"])


def test_tls_is_a_time_of_its_own(certificate, capsys, monkeypatch):
    """A certificate that is trusted, by the variable that OpenSSL has for it."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.with_suffix(".crt")))
    secured = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    secured.load_cert_chain(certificate)
    with serving(SSE + b"\r\n" + token(), secured=secured) as (url, _):
        main(["probe", url, "--requests", "1", "--json", "--timeout", "5"])

    one = json.loads(capsys.readouterr().out)["requests"][0]
    assert one["failure"] is None
    assert one["tls_seconds"] > 0


def test_a_certificate_that_nobody_trusts_is_refused(certificate, capsys):
    """The probe never sends a key to whoever answers."""
    secured = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    secured.load_cert_chain(certificate)
    with serving(SSE, secured=secured) as (url, asked):
        assert 2 == main(["probe", url, "--timeout", "5"])

    assert [] == asked
    assert "certificate" in capsys.readouterr().err
