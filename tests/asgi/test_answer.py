"""An answer in one JSON document, in every dialect."""

import pytest
from inline_snapshot import snapshot

from llm_trace.asgi.answer import facts_of


def told(document):
    """The facts of a document, without what it does not say."""
    facts = facts_of(document)
    every = {name: getattr(facts, name) for name in facts.__slots__}
    if facts.usage:
        every["usage"] = {k: v for k, v in facts.usage._asdict().items() if v is not None}
    return {k: v for k, v in every.items() if v not in (None, [], 0)}


def test_chat_completion():
    """OpenAI chat: every choice has a reason."""
    told_of = told(
        {
            "id": "c1",
            "object": "chat.completion",
            "model": "m",
            "choices": [
                {"message": {"content": "a"}, "finish_reason": "stop"},
                {"message": {"content": "b"}, "finish_reason": "length"},
            ],
            "usage": {
                "prompt_tokens": 9,
                "completion_tokens": 4,
                "prompt_tokens_details": {"cached_tokens": 8},
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
        }
    )

    assert (
        snapshot(
            {
                "finish_reasons": ["stop", "length"],
                "response_id": "c1",
                "response_model": "m",
                "usage": {
                    "input_tokens": 9,
                    "output_tokens": 4,
                    "cached_tokens": 8,
                    "reasoning_tokens": 2,
                },
            }
        )
        == told_of
    )


def test_anthropic_message():
    """Anthropic: `stop_reason` is on the document; cached tokens are added to its input."""
    told_of = told(
        {
            "type": "message",
            "id": "msg_1",
            "model": "claude",
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 5, "output_tokens": 2, "cache_read_input_tokens": 3},
        }
    )

    assert (
        snapshot(
            {
                "finish_reasons": ["end_turn"],
                "response_id": "msg_1",
                "response_model": "claude",
                "usage": {"input_tokens": 8, "output_tokens": 2, "cached_tokens": 3},
            }
        )
        == told_of
    )


def test_responses():
    """OpenAI Responses, in one piece."""
    told_of = told(
        {
            "id": "resp_1",
            "object": "response",
            "model": "m",
            "status": "completed",
            "usage": {"input_tokens": 5, "output_tokens": 2, "input_tokens_details": {}},
        }
    )

    assert (
        snapshot(
            {
                "response_id": "resp_1",
                "response_model": "m",
                "usage": {"input_tokens": 5, "output_tokens": 2},
            }
        )
        == told_of
    )


def test_ollama():
    """Ollama, in one piece."""
    told_of = told(
        {
            "model": "m",
            "response": "a",
            "done": True,
            "done_reason": "stop",
            "prompt_eval_count": 3,
            "eval_count": 2,
        }
    )

    assert (
        snapshot(
            {
                "finish_reasons": ["stop"],
                "response_model": "m",
                "usage": {"input_tokens": 3, "output_tokens": 2},
            }
        )
        == told_of
    )


def test_embeddings():
    """Embeddings have usage and no reason."""
    told_of = told({"object": "list", "model": "e", "data": [], "usage": {"prompt_tokens": 5}})

    assert snapshot({"response_model": "e", "usage": {"input_tokens": 5}}) == told_of


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"choices": None, "usage": None},
        {"choices": [None, 5], "usage": [1], "id": 5, "model": {}},
        {"usage": {"prompt_tokens": -1, "completion_tokens": "3"}},
        {"stop_reason": None, "done": True, "eval_count": None},
        {"type": 5, "object": []},
    ],
)
def test_a_document_of_nonsense_says_nothing(document):
    """Whatever is in it, nothing raises and nothing is claimed."""
    assert told(document) == {}


def test_an_error_is_named():
    """An error document says its type, never its message."""
    assert told({"error": {"type": "invalid", "message": "secret"}}) == {"error_type": "invalid"}
