"""What the probe asks, and what of the command line it refuses."""

import json

import pytest

from llm_trace.cli import main
from llm_trace.errors import LlmTraceError
from llm_trace.probe.target import chat_body, question, target_of


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("http://a", "http://a:80/v1/chat/completions"),
        ("https://a/", "https://a:443/v1/chat/completions"),
        ("http://a:8000/v1/", "http://a:8000/v1/chat/completions"),
        ("http://[::1]:8000/ask?x=1", "http://[::1]:8000/ask?x=1"),
        ("https://a/v1/messages", "https://a:443/v1/messages"),
    ],
)
def test_a_server_alone_is_asked_on_its_chat_route(url, asked):
    """A URL with a path is that route; one without is where chat is."""
    assert asked == target_of(url, {}, 1.0).url


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "is no URL"),
        ("a:8000", "is no URL"),
        ("ftp://a", "is no URL"),
        ("http://", "is no URL"),
        ("http://a:port", "is no URL"),
        ("http://a:99999", "is no URL"),
        ("http://[::1", "is no URL"),
        ("http://a/b c", "blanks or control characters"),
        ("http://ä/", "escape what is not ASCII"),
        ("http://user:secret@a/", "--api-key-env"),
    ],
)
def test_what_is_no_url_is_said_in_a_sentence(url, says):
    """A fault of the user's is named, and a secret in it is not shown."""
    with pytest.raises(LlmTraceError, match=says) as caught:
        target_of(url, {}, 1.0)

    assert "secret" not in str(caught.value)


def test_each_question_is_a_sampled_trace_of_its_own():
    """The trace id is in the traceparent; the ledger is asked for, and nothing compressed."""
    target = target_of("http://a", {"x-tenant": "blue"}, 1.0)
    one, other = (question(target, chat_body("m", "why", 5)) for _ in range(2))

    assert one.trace_id != other.trace_id
    assert f"00-{one.trace_id}-" == one.headers["traceparent"][:36]
    assert one.headers["traceparent"].endswith("-01")
    assert ("1", "identity", "blue") == tuple(
        one.headers[name] for name in ("x-llm-trace-ledger", "accept-encoding", "x-tenant")
    )
    assert {
        "model": "m",
        "messages": [{"role": "user", "content": "why"}],
        "max_tokens": 5,
        "stream": True,
    } == json.loads(one.body)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["http://a", "--requests", "0"],
        ["http://a", "--requests", "many"],
        ["http://a", "--max-tokens", "-1"],
        ["http://a", "--timeout", "nan"],
        ["http://a", "--timeout", "0"],
        ["http://a", "--body", "[]"],
        ["http://a", "--body", "{"],
        ["http://a", "--body", "[" * 100_000],
        ["http://a", "--header", "no-colon"],
        ["http://a", "--header", "bad name: x"],
        ["http://a", "--header", "x: a\r\nb: c"],
        ["http://a", "--header", "x: ä"],
    ],
)
def test_bad_words_are_usage_errors(words, capsys):
    """Status 2 and a sentence, no traceback; the value of a header is not repeated."""
    with pytest.raises(SystemExit) as caught:
        main(["probe", *words])

    assert 2 == caught.value.code
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["nonsense"], ["http://127.0.0.1:1"], ["http://a", "--api-key-env", "NO_SUCH_KEY"]]
)
def test_what_cannot_be_asked_is_status_2(words, capsys):
    """No URL, nobody there, no key: one sentence."""
    assert 2 == main(["probe", *words])

    said = capsys.readouterr().err
    assert said.startswith("llm-trace: ")
    assert 1 == said.count("\n")
