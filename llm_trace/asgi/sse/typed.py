"""Events that name their type: OpenAI Responses and Anthropic messages."""

from __future__ import annotations

from typing import Final

from llm_trace.asgi.sse.facts import Seen, as_dict
from llm_trace.asgi.sse.reading import ANSWER, CALL, REASONING, Reading

__all__ = ["BITS_OF_TYPE", "kind_of_delta", "read_typed"]

BITS_OF_TYPE: Final = {
    "ping": Seen.COMMENT,
    # Anthropic
    "message_start": Seen.ROLE,
    "content_block_start": Seen.ROLE,
    "message_stop": Seen.END,
    # OpenAI Responses
    "response.created": Seen.ROLE,
    "response.queued": Seen.ROLE,
    "response.in_progress": Seen.ROLE,
    "response.output_item.added": Seen.ROLE,
    "response.content_part.added": Seen.ROLE,
    "response.reasoning_part.added": Seen.ROLE,
    "response.reasoning_summary_part.added": Seen.ROLE,
    "response.completed": Seen.FINISH | Seen.END,
    "response.incomplete": Seen.FINISH | Seen.END,
    "response.cancelled": Seen.FINISH | Seen.END,
    "response.failed": Seen.ERROR | Seen.END,
    "error": Seen.ERROR,
}
"""What a type alone says. Any other type says nothing: events that repeat at the end what the
deltas said (`response.output_text.done`) are no tokens."""

_CALL_TYPES: Final = ("function_call", "tool_call", "mcp_call", "code_interpreter")


_OPENED: Final = {"content_block_start": "content_block", "response.output_item.added": "item"}
"""Events that open a part of the answer, such as a tool call, and the field that says which."""

_CALLS: Final = ("_call", "tool_use")
"""How the types of tool calls end."""


def kind_of_delta(kind: str) -> int:
    """Return the bits of a token whose event is of type `kind`, such as "response.text.delta"."""
    if "reasoning" in kind:
        return REASONING
    return CALL if any(word in kind for word in _CALL_TYPES) else ANSWER


def read_typed(kind: str, event: dict[str, object], reading: Reading) -> None:
    """Read an event of type `kind`."""
    reading.bits |= BITS_OF_TYPE.get(kind, 0)
    if kind.endswith(".delta"):
        reading.token(kind_of_delta(kind), event, "delta")
        _note_empty(reading)
    elif kind in _OPENED:
        _read_opened(as_dict(event.get(_OPENED[kind])), reading)
    elif kind.startswith("response."):
        _read_response(as_dict(event.get("response")), reading)
    elif kind == "content_block_delta":
        _read_block(as_dict(event.get("delta")), reading)
    elif kind == "message_delta":
        reading.finish(as_dict(event.get("delta")).get("stop_reason"))
    elif kind == "message_start":
        message = as_dict(event.get("message"))
        reading.facts.identify(message)
        reading.usage(message.get("usage"))
    elif kind == "error" and not event.get("error"):
        # The Responses' error event is the error; its type is the event's, so the code names it.
        reading.error({"code": event.get("code")})


def _read_opened(part: dict[str, object], reading: Reading) -> None:
    """Read what opens: a call's name was generated, and is all that shows of one without input."""
    kind = part.get("type")
    if type(kind) is str and kind.endswith(_CALLS):
        reading.token(CALL, part, "name")


def _read_block(delta: dict[str, object], reading: Reading) -> None:
    reading.token(ANSWER, delta, "text")
    reading.token(REASONING, delta, "thinking")
    reading.token(CALL, delta, "partial_json")
    _note_empty(reading)  # as is a signature, which the server makes, not the model


def _note_empty(reading: Reading) -> None:
    if not reading.bits & Seen.TOKEN:
        reading.bits |= Seen.ROLE


def _read_response(response: dict[str, object], reading: Reading) -> None:
    reading.facts.identify(response)
    reading.usage(response.get("usage"))
    if reading.bits & Seen.ERROR:
        reading.error(response.get("error"))
    elif reading.bits & Seen.FINISH:
        details = as_dict(response.get("incomplete_details"))
        reading.finish(details.get("reason") or response.get("status"))
