"""What was said in one request, for who asks for it: bounded, on the root span, off by default.

Copies what passes by and reads it when the request is over, so that nothing here runs where
content is not captured.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from llm_trace import semconv as s
from llm_trace.asgi.chunks import snapshot
from llm_trace.asgi.sse.facts import as_dict, as_list
from llm_trace.asgi.sse.framing import fields_of, framing_of
from llm_trace.asgi.types import Message, Send
from llm_trace.core import faults

Part = dict[str, Any]
Said = dict[str, Any]
"""A message in the form of `gen_ai.input.messages`: a role and parts."""

_TEXT: Final = "text"
_REASONING: Final = "reasoning"
_MAX_KIND: Final = 64
_SMALLEST: Final = 16

_DELTAS: Final[Mapping[str, str]] = {
    "content": _TEXT,
    "text": _TEXT,
    "refusal": _TEXT,
    "reasoning_content": _REASONING,
    "reasoning": _REASONING,
    "thinking": _REASONING,
}
"""The fields of a message, a delta or a choice that hold text, and the kind of part it is."""


class ContentCopy:
    """What one request said, as far as it was bounded.

    Args:
        send: The server's `send`.
        read: Bytes of the answer to keep until its end.
        limit: Bytes of an attribute.
    """

    __slots__ = ("_answer", "_asked", "_limit", "_overrun", "_room", "_send", "_stream")

    def __init__(self, send: Send, *, read: int, limit: int) -> None:
        self._send = send
        self._room = read
        self._limit = limit
        self._answer = bytearray()
        self._asked: list[Said] = []
        self._overrun = False
        self._stream = False

    async def send(self, message: Message) -> None:
        """Pass `message` on, and keep what it says."""
        shown = snapshot(message)
        await self._send(message)
        try:
            self._keep(shown)
        except Exception as error:  # noqa: BLE001 - rule 1: never hurt the host
            faults.contain("content", error)

    def _keep(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = {name.lower(): value for name, value in message.get("headers", ())}
            kind = headers.get(b"content-type", b"").decode("latin-1")
            self._stream = framing_of(kind) is not None or "json" not in kind
            if headers.get(b"content-encoding", b"identity") != b"identity":
                self._room = 0
            return
        body = message.get("body", b"")
        self._overrun = self._overrun or len(body) > self._room
        self._answer += body[: self._room]
        self._room -= min(self._room, len(body))

    def asked(self, document: Mapping[str, Any]) -> None:
        """Take the request's document."""
        self._asked = list(asked(document))

    def attributes(self) -> dict[str, object]:
        """What was asked and answered, as attributes."""
        answer = bytes(self._answer)
        said = list(answered(_events(answer) if self._stream else _documents(answer)))
        made: dict[str, object] = {}
        cut = self._overrun
        for name, messages in ((s.INPUT_MESSAGES, self._asked), (s.OUTPUT_MESSAGES, said)):
            if messages:
                made[name], shortened = encode(messages, self._limit)
                cut = cut or shortened
        if cut:
            made[s.CONTENT_TRUNCATED] = True
        return made


# --- what was asked -------------------------------------------------------------------------------


def asked(document: Mapping[str, Any]) -> Iterator[Said]:
    """The messages of a request: OpenAI's, Anthropic's and Ollama's, and plain prompts."""
    for name in ("system", "instructions"):
        if parts := _parts(document.get(name)):
            yield {"role": "system", "parts": parts}
    for name in ("messages", "prompt", "input"):
        value = document.get(name)
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str):
                yield {"role": "user", "parts": _parts(one)}
            elif isinstance(one, dict) and (parts := [*_parts(one.get("content")), *_calls(one)]):
                role = _spelled(one.get("role")) or "user"
                yield {"role": role[:_MAX_KIND], "parts": parts}


def _parts(content: object) -> list[Part]:
    if isinstance(content, str):
        return [{"type": _TEXT, "content": content}] if content else []
    return [_part(one) for one in as_list(content) if isinstance(one, dict)]


def _part(one: Mapping[str, Any]) -> Part:
    """A part of a message; of what is no text only that it was there."""
    for name in (_TEXT, "thinking"):
        if isinstance(one.get(name), str):
            return {"type": _DELTAS[name], "content": one[name]}
    return {"type": str(one.get("type", ""))[:_MAX_KIND]}


def _calls(message: Mapping[str, Any]) -> Iterator[Part]:
    for call in as_list(message.get("tool_calls")):
        function = as_dict(as_dict(call).get("function"))
        named, arguments = (_spelled(function.get(key)) for key in ("name", "arguments"))
        yield {"type": "tool_call", "name": named, "arguments": arguments}


def _spelled(value: object) -> str:
    """Text as it is, and what a server sends as JSON in its place; null is nothing."""
    if isinstance(value, str):
        return value
    return "" if value is None else _json(value)


# --- what was answered ----------------------------------------------------------------------------


def _documents(answer: bytes) -> Iterator[dict[str, Any]]:
    try:
        document = json.loads(answer)
    except (ValueError, RecursionError):
        return
    if isinstance(document, dict):
        yield document


def _events(answer: bytes) -> Iterator[dict[str, Any]]:
    """The JSON of server-sent events, or of lines."""
    for raw in answer.replace(b"\r\n", b"\n").split(b"\n"):
        yield from _documents(fields_of(raw + b"\n").data or raw)


def answered(documents: Iterable[Mapping[str, Any]]) -> Iterator[Said]:
    """The messages of an answer, whose parts may have come in many events."""
    messages: dict[int, list[Part]] = {}
    for document in documents:
        for index, kind, text in _texts(document):
            parts = messages.setdefault(index, [])
            if not parts or parts[-1]["type"] != kind:
                parts.append({"type": kind, "content": ""})
            parts[-1]["content"] += text
    for _, parts in sorted(messages.items()):
        yield {"role": "assistant", "parts": parts}


def _texts(document: Mapping[str, Any]) -> Iterator[tuple[int, str, str]]:
    """The texts of one event or of a whole answer: choice, kind, text."""
    for choice in map(as_dict, as_list(document.get("choices"))):
        index = choice.get("index")
        said = as_dict(choice.get("delta") or choice.get("message"))
        yield from _of(index if type(index) is int else 0, {**choice, **said})
    yield from _of(0, as_dict(document.get("message")))  # Ollama's chat, Anthropic's beginning
    if isinstance(document.get("response"), str):  # Ollama's completion
        yield 0, _TEXT, document["response"]
    yield from _typed(document)


def _of(index: int, said: Mapping[str, Any]) -> Iterator[tuple[int, str, str]]:
    for name, kind in _DELTAS.items():
        if isinstance(said.get(name), str) and said[name]:
            yield index, kind, said[name]
    for call in _calls(said):
        yield index, "tool_call", f"{call['name']}{call['arguments']}"


def _typed(document: Mapping[str, Any]) -> Iterator[tuple[int, str, str]]:
    """OpenAI responses and Anthropic messages, in events and whole."""
    delta = document.get("delta")
    if isinstance(delta, str) and str(document.get("type")).endswith("text.delta"):
        yield 0, _TEXT, delta
    yield from _of(0, as_dict(delta))
    whole = as_list(document.get("content"))
    for item in as_list(document.get("output")):
        whole += as_list(as_dict(item).get("content"))
    for part in map(as_dict, whole):
        yield from _of(0, part)


# --- as an attribute ------------------------------------------------------------------------------


def encode(messages: list[Said], limit: int) -> tuple[str, bool]:
    """`messages` as JSON in at most `limit` UTF-8 bytes, and whether something had to go.

    The newest are kept: what does not fit is cut at a character, what came before it is left out.
    """
    kept: list[Said] = []
    whole = True
    room = limit - len("[]")
    for message in reversed(messages):
        size = _size(message) + len(", ")
        if size > room:
            kept += _cut(message, room - len(", "))
            whole = False
            break
        kept.append(message)
        room -= size
    return _json(kept[::-1]), not whole


def _cut(message: Said, room: int) -> list[Said]:
    """`message` in so many bytes: its parts as far as they fit, the last one cut."""
    short: Said = {"role": message["role"], "parts": []}
    for part in message["parts"]:
        if not _fit(part, short, room):
            break
    return [short] if short["parts"] else []


def _fit(part: Part, into: Said, room: int) -> bool:
    """Add `part` whole, or as much of it as there is room for; whether it was whole."""
    into["parts"].append(part)
    text = part.get("content", "")
    if _size(into) <= room:
        return True
    into["parts"].pop()
    while len(text) > _SMALLEST:  # by halves: how far JSON's escapes stretch a text varies
        text = text[: len(text) // 2]
        into["parts"].append({**part, "content": text})
        if _size(into) <= room:
            break
        into["parts"].pop()
    return False


def _json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode()


def _size(value: object) -> int:
    return len(_json(value).encode())
