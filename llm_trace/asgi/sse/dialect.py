"""Which dialect an event speaks, told by the event itself.

Servers and gateways mix dialects behind one path, so nothing is configured: `choices` (or the
`object` beside it) is OpenAI chat or completions, a `type` is OpenAI Responses or Anthropic
messages, `done` is Ollama, and an `error` may come in any of them.
"""

from __future__ import annotations

from json import JSONDecoder
from typing import TYPE_CHECKING, Final

from llm_trace.asgi.sse.choices import read_choices
from llm_trace.asgi.sse.facts import Seen, StreamFacts, Usage, as_dict, as_list
from llm_trace.asgi.sse.reading import ANSWER, CALL, REASONING, Reading
from llm_trace.asgi.sse.typed import read_typed
from llm_trace.core.usage import count

if TYPE_CHECKING:
    from llm_trace.asgi.sse.framing import Fields

__all__ = ["read", "read_object"]

_PINGS: Final = frozenset({"ping", "keepalive", "keep-alive", "heartbeat"})

# Raw control characters in strings are a fault of the server, but no reason to lose a token.
# `raw_decode` spares two searches for blanks, which are stripped already.
_decode: Final = JSONDecoder(strict=False).raw_decode


def read(fields: Fields, facts: StreamFacts) -> Reading:
    """Read one event; whatever its bytes, this does not raise."""
    reading = Reading(facts)
    if fields.commented or fields.name in _PINGS:
        reading.bits |= Seen.COMMENT
    # JSON allows these blanks around a value; JSON text sequences begin with a record separator.
    data = (fields.data or b"").strip(b" \t\r\n\x1e")
    if data == b"[DONE]":
        reading.bits |= Seen.END
    elif data and fields.name not in _PINGS:
        _read_data(data, fields.name, reading)
    return reading


def _read_data(data: bytes, name: str, reading: Reading) -> None:
    try:
        text = data.decode("utf-8", "replace")
        event, end = _decode(text)
        event = event if end == len(text) else None
    except (ValueError, RecursionError):
        event = None
    if isinstance(event, dict):
        read_object(event, name, reading)
    elif name == "error":
        reading.error(event)  # its text is not JSON, and is not for us to keep
    else:
        reading.facts.malformed += 1


def read_object(event: dict[str, object], name: str, reading: Reading) -> None:
    """Read one JSON object; `name` is the event's, empty if it has none."""
    kind = event.get("type")
    if event.get("error"):
        reading.error(event["error"])
    elif event.get("object") == "error" or (name == "error" and kind != name):
        reading.error(event)
    reading.usage(event.get("usage"))
    if "choices" in event or "object" in event:
        read_choices(event, reading)
    elif "done" in event:
        _read_ollama(event, reading)
    else:
        read_typed(kind if type(kind) is str else name, event, reading)


def _read_ollama(event: dict[str, object], reading: Reading) -> None:
    """Read a line of Ollama's: chat has a `message`, generate a `response`."""
    reading.facts.identify(event)
    message = as_dict(event.get("message"))
    reading.token(ANSWER, event, "response")
    reading.token(ANSWER, message, "content")
    reading.token(REASONING, event, "thinking")
    reading.token(REASONING, message, "thinking")
    for call in as_list(message.get("tool_calls")):
        reading.token(CALL, as_dict(as_dict(call).get("function")), "name")
    if event["done"] is True:
        _read_end(event, reading)
    elif not reading.bits:
        reading.bits |= Seen.ROLE


def _read_end(event: dict[str, object], reading: Reading) -> None:
    reading.bits |= Seen.END
    reading.finish(event.get("done_reason"))
    inputs, outputs = event.get("prompt_eval_count"), event.get("eval_count")
    reading.counts(Usage(count(inputs), count(outputs)))
