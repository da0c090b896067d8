"""What is read of a request to an engine: the model and the parameters, never content."""

from __future__ import annotations

import json

import pytest

from llm_trace import semconv as s
from llm_trace.upstream.asked import asked

SMALL = {"model": "m", "temperature": 0.5, "messages": [{"role": "user", "content": "secret"}]}
LONG = "x" * 10_000


@pytest.mark.parametrize("body", [SMALL, json.dumps(SMALL).encode()])
def test_a_body_says_model_and_parameters(body):
    """As bytes on the wire, or as the document that the client was given."""
    assert asked(body, 1 << 16) == ("m", {s.REQUEST_TEMPERATURE: 0.5})


@pytest.mark.parametrize(
    ("document", "model"),
    [
        ({"model": "first", "messages": LONG}, "first"),
        ({"messages": LONG, "model": "last"}, "last"),
        ({"messages": LONG, "stop": LONG}, ""),
        ({"messages": '"model": "quoted"' + LONG}, ""),
        ({"a": LONG, "model": "lost", "b": LONG}, ""),
    ],
)
def test_of_a_long_body_only_the_ends_are_looked_at(document, model):
    """Clients put the model before the prompt or after it."""
    assert asked(json.dumps(document).encode(), 100) == (model, {})


@pytest.mark.parametrize("body", [b"", b"[]", b"nonsense", b'{"model": 5}', b"\xff\xfe", {}])
def test_what_is_no_request_says_nothing(body):
    """No model is made up, and nothing raises."""
    assert asked(body, 1 << 16) == ("", {})


@pytest.mark.parametrize("body", [SMALL, json.dumps(SMALL).encode()])
def test_nothing_is_looked_at_where_the_setting_says_so(body):
    """`max_body_bytes` 0."""
    assert asked(body, 0) == ("", {})
