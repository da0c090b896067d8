"""Events with `choices`: OpenAI chat chunks and legacy completions, as vLLM and others send them.

Fields of a delta come and go with server versions (vLLM renamed `reasoning_content` to
`reasoning`), so they are told apart by their names only, and any of them may be null.
"""

from __future__ import annotations

from typing import Final

from llm_trace.asgi.sse.facts import Seen, as_dict, as_list
from llm_trace.asgi.sse.reading import ANSWER, CALL, REASONING, Reading

__all__ = ["read_choices"]

_TEXTS: Final = {
    "content": ANSWER,
    "refusal": ANSWER,
    "reasoning_content": REASONING,
    "reasoning": REASONING,
}
_RICH: Final = frozenset({"audio", "tool_calls", "function_call"})


def read_choices(event: dict[str, object], reading: Reading) -> None:
    """Read one chunk; `choices` may be missing, null or empty, as in usage chunks."""
    reading.facts.identify(event)
    if "metrics" in event:
        reading.metrics(event["metrics"])
    choices = as_list(event.get("choices"))
    for choice in choices:
        _read_choice(as_dict(choice), reading)
    said = Seen.TOKEN | Seen.FINISH if choices else Seen.USAGE | Seen.ERROR
    if not reading.bits & said:
        reading.bits |= Seen.ROLE


def _read_choice(choice: dict[str, object], reading: Reading) -> None:
    if "text" in choice:
        reading.token(ANSWER, choice, "text")
    elif "delta" not in choice and as_list(choice.get("token_ids")):
        reading.bits |= ANSWER  # vLLM's tokens in, tokens out: nobody has made text of them yet
    delta = as_dict(choice.get("delta"))
    for key in delta:  # most have one
        if key in _TEXTS:
            reading.token(_TEXTS[key], delta, key)
    if type(delta.get("content")) is list:
        _read_parts(as_list(delta["content"]), reading)
    if not _RICH.isdisjoint(delta):
        _read_rich(delta, reading)
    reason = choice.get("finish_reason")
    if reason is not None:
        reading.finish(reason)


def _read_rich(delta: dict[str, object], reading: Reading) -> None:
    """Read audio and tool calls."""
    if "audio" in delta:
        audio = as_dict(delta["audio"])
        reading.token(ANSWER, audio, "data")
        reading.token(ANSWER, audio, "transcript")
    if "tool_calls" in delta or "function_call" in delta:
        _read_calls(delta, reading)


def _read_parts(parts: list[object], reading: Reading) -> None:
    """Read content that is a list of parts."""
    for part in parts:
        fields = as_dict(part)
        reading.token(ANSWER, fields, "text")
        reading.token(REASONING, fields, "thinking")
        for thought in as_list(fields.get("thinking")):
            reading.token(REASONING, as_dict(thought), "text")


def _read_calls(delta: dict[str, object], reading: Reading) -> None:
    """Read tool calls, by their present and their former name."""
    calls = [as_dict(call) for call in as_list(delta.get("tool_calls"))]
    functions = [as_dict(call.get("function") or call.get("custom")) for call in calls]
    for function in (*functions, as_dict(delta.get("function_call"))):
        # The name was generated, too: a call without arguments is still a token.
        for key in ("name", "arguments", "input"):
            reading.token(CALL, function, key)
