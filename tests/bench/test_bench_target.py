"""Whom the benchmark may load, and how it asks."""

import json

import pytest

from llm_trace.bench.errors import BenchError
from llm_trace.bench.target import Target, check_url, is_local, root_of
from llm_trace.errors import LlmTraceError


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("http://localhost:8000", "http://localhost:8000"),
        ("http://localhost:8000/", "http://localhost:8000"),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/v1/chat/completions", "http://127.0.0.1:8000"),
        ("https://[::1]:8443/team/v1/?x=1#y", "https://[::1]:8443/team"),
    ],
)
def test_any_url_of_the_api_names_its_root(url, root):
    """With or without /v1, a path prefix kept."""
    assert root_of(url) == root


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST.", "127.0.0.1", "127.9.9.9", "::1", "0:0:0:0:0:0:0:1"]
)
def test_a_loopback_is_local(host):
    """By name or address."""
    assert is_local(host)


@pytest.mark.parametrize(
    "host", ["example.com", "10.0.0.1", "0.0.0.0", "localhost.evil.org", "", "127.0.0.1.nip.io"]
)
def test_everything_else_is_not(host):
    """A name that merely looks like it would be resolved by somebody else."""
    assert not is_local(host)


def test_another_machine_needs_a_flag():
    """A benchmark is load."""
    with pytest.raises(BenchError, match=r"example\.com is not this machine.*--allow-remote"):
        check_url("http://example.com/v1", allow_remote=False)

    check_url("http://example.com/v1", allow_remote=True)


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("", "is no URL"),
        ("localhost:8000", "is no URL"),
        ("ftp://localhost", "is no URL"),
        ("http://", "is no URL"),
        ("http://localhost:99999", "is no URL"),
        ("http://[::1", "is no URL"),
        ("http://me:secret@localhost", "--api-key-env"),
    ],
)
def test_what_is_no_url_is_told(url, fault):
    """And a password in it is never repeated."""
    with pytest.raises(LlmTraceError, match=fault) as raised:
        check_url(url, allow_remote=True)

    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("api", "content"),
    [
        ("chat", {"messages": [{"role": "user", "content": "hi"}]}),
        ("completions", {"prompt": "hi"}),
    ],
)
def test_a_request_streams_and_counts(api, content):
    """What the user adds beats what we would send."""
    target = Target(root="http://h", api=api, model="m", extra={"max_tokens": 5, "top_k": 1})

    assert json.loads(target.body("hi", 9)) == {
        "model": "m",
        **content,
        "max_tokens": 5,
        "stream": True,
        "stream_options": {"include_usage": True},
        "top_k": 1,
    }


def test_a_key_is_not_shown():
    """Neither in a log nor in an error."""
    target = Target(root="http://h", api="chat", model="m", headers={"authorization": "Bearer k3y"})

    assert "k3y" not in repr(target)
