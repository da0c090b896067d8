"""Addresses of the command line: what is one, and what is said of the rest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_trace.address import http_url, is_http
from llm_trace.errors import LlmTraceError


def parsed(text):
    """Take it apart, as a command would."""
    return http_url(text, such_as="http://h:80", key_option="--key-env")


@pytest.mark.parametrize(
    "text",
    ["http://h", "HTTPS://h:8443/v1?x=1#y", "http://[::1]:65535/", "http://bücher.example/%20"],
)
def test_an_address_is_taken_apart(text):
    """A name, or an address of any kind, with or without a port."""
    assert parsed(text).geturl().lower() == text.lower()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'' is no URL: use one such as http://h:80."),
        ("h:80", "'h:80' is no URL: use one such as http://h:80."),
        ("ftp://h", "'ftp://h' is no URL: use one such as http://h:80."),
        ("http://", "'http://' is no URL: use one such as http://h:80."),
        ("http://[::1", "'http://[::1' is no URL: use one such as http://h:80."),
        ("http://h:port", "'http://h:port' is no URL: use a port from 1 to 65535."),
        ("http://h:65536", "'http://h:65536' is no URL: use a port from 1 to 65535."),
        ("http://h:0", "'http://h:0' is no URL: use a port from 1 to 65535."),
        (
            "http://h/\n",
            r"'http://h/\n' is no URL: it holds blanks or control characters; escape them.",
        ),
        (
            "http://me:pa55@h",
            "the URL holds a user or password: name a variable with --key-env.",
        ),
        ("http://me:pa55@[::1", "'http://***@[::1' is no URL: use one such as http://h:80."),
    ],
)
def test_what_is_no_address_is_told(text, said):
    """What was wrong, and what to use; a password is not repeated."""
    with pytest.raises(LlmTraceError) as refusal:
        parsed(text)

    assert said == str(refusal.value)


@given(st.text() | st.from_regex(r"https?://[^/]*/?.*"))
def test_any_text_is_an_address_or_a_sentence(text):
    """And what can be asked is of http."""
    try:
        parts = parsed(text)
    except LlmTraceError:
        return
    assert is_http(parts.geturl())
