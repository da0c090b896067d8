"""Every dialect, told by its events, gives the same bits and facts however it is cut."""

from __future__ import annotations

import json

import pytest
from sse_streams import chat, ndjson, observed, same_at_every_line_end, sse, typed

from llm_trace.asgi.sse import Seen

ROLE, USAGE, FINISH, ERROR, END = Seen.ROLE, Seen.USAGE, Seen.FINISH, Seen.ERROR, Seen.END
ANSWER = Seen.TOKEN | Seen.ANSWER
REASONING = Seen.TOKEN | Seen.REASONING
CALL = Seen.TOKEN | Seen.ANSWER | Seen.TOOL_CALL

CHAT = {"response_id": "chatcmpl-1", "response_model": "tiny"}
ROLE_CHUNK = chat({"role": "assistant", "content": ""})


def delta(kind, text="Hi", **more):
    """Return a Responses event that carries `text`."""
    return {"type": f"response.{kind}.delta", "item_id": "msg_1", "delta": text, **more}


def block(**fields):
    """Return an Anthropic content_block_delta."""
    return {"type": "content_block_delta", "index": 0, "delta": fields}


def response(kind, **fields):
    """Return a Responses event about the response as a whole."""
    return {"type": f"response.{kind}", "response": {"id": "resp_1", "model": "tiny", **fields}}


CHAT_STREAMS = {
    "role, content, finish, usage, [DONE]": (
        sse(
            ROLE_CHUNK,
            chat({"content": " hello"}),
            chat({"content": " world"}),
            chat({"content": ""}, "stop"),
            {
                **CHAT,
                "object": "chat.completion.chunk",
                "choices": [],
                "usage": {
                    "prompt_tokens": 7,
                    "completion_tokens": 2,
                    "prompt_tokens_details": {"cached_tokens": 4},
                    "completion_tokens_details": {"reasoning_tokens": 1},
                },
            },
            "[DONE]",
        ),
        {
            "bits": ROLE | ANSWER | FINISH | USAGE | END,
            "token_events": 2,
            "finish_reasons": ["stop"],
            "usage": {
                "input_tokens": 7,
                "output_tokens": 2,
                "cached_tokens": 4,
                "reasoning_tokens": 1,
            },
        },
    ),
    "last token with its finish reason": (
        sse(chat({"content": "Hi"}, "length")),
        {"bits": ANSWER | FINISH, "token_events": 1, "finish_reasons": ["length"]},
    ),
    "usage on every chunk": (
        sse(*(chat({"content": "a"}, usage={"completion_tokens": n}) for n in (1, 2))),
        {"bits": ANSWER | USAGE, "token_events": 2, "usage": {"output_tokens": 2}},
    ),
    "usage null, and without counts": (
        sse(
            chat({"content": "a"}, usage=None),
            chat({"content": "a"}, usage={"prompt_tokens": None}),
        ),
        {"bits": ANSWER, "token_events": 2},
    ),
    "reasoning, then answer": (
        sse(
            chat({"reasoning_content": "hm"}),
            chat({"reasoning": "hm"}),
            chat({"reasoning": "hmm"}),
            chat({"content": "Hi"}),
            chat({"content": "Hi"}),
        ),
        {"bits": ANSWER | REASONING, "token_events": 5},
    ),
    "both in one delta": (
        sse(chat({"reasoning": "hm", "content": "Hi"})),
        {"bits": ANSWER | REASONING, "token_events": 1},
    ),
    "refusal": (sse(chat({"refusal": "No"})), {"bits": ANSWER, "token_events": 1}),
    "parts": (
        sse(
            chat({"content": [{"type": "text", "text": "Hi"}, 5]}),
            chat({"content": [{"type": "thinking", "thinking": [{"text": "hm"}, None]}]}),
            chat({"content": []}),
        ),
        {"bits": ANSWER | REASONING | ROLE, "token_events": 2},
    ),
    "audio": (
        sse(chat({"audio": {"data": "UklG"}}), chat({"audio": {"id": "a", "transcript": "Hi"}})),
        {"bits": ANSWER, "token_events": 2},
    ),
    "tool calls": (
        sse(
            chat({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]}),
            chat({"tool_calls": [{"index": 0, "function": {"arguments": '{"city":'}}]}),
            chat({"tool_calls": [{"index": 0, "custom": {"name": "", "input": "x"}}]}),
            chat({"tool_calls": [{}]}),
            chat({"function_call": {"arguments": "1"}}),
            chat({}, "tool_calls"),
        ),
        {
            "bits": CALL | ROLE | FINISH,
            "token_events": 4,
            "finish_reasons": ["tool_calls"],
        },
    ),
    "two choices": (
        sse(
            *(
                chat(choices=[{"index": i, "delta": {"content": "a"}} for i in indexes])
                for indexes in ([0], [1], [0, 1], [1])
            )
        ),
        {"bits": ANSWER, "token_events": 4},
    ),
}


@pytest.mark.parametrize(("stream", "expected"), CHAT_STREAMS.values(), ids=CHAT_STREAMS)
def test_chat_chunks(stream, expected):
    """Chat chunks are read by the fields of their deltas."""
    assert same_at_every_line_end(stream) == {**CHAT, **expected}


OTHER_STREAMS = {
    "tokens in, tokens out": (
        sse(
            {"request_id": "g-1", "choices": [{"index": 0, "token_ids": []}]},
            {"request_id": "g-1", "choices": [{"index": 0, "token_ids": [5]}], "usage": None},
            {"choices": [{"token_ids": [7, 8], "finish_reason": "length"}]},
            "[DONE]",
        ),
        {
            "bits": ROLE | ANSWER | FINISH | END,
            "token_events": 2,
            "finish_reasons": ["length"],
        },
    ),
    "token ids beside a delta": (
        sse({"choices": [{"delta": {"role": "assistant", "content": ""}, "token_ids": [5]}]}),
        {"bits": ROLE},
    ),
    "completions": (
        sse(
            {"id": "cmpl-1", "model": "tiny", "choices": [{"index": 0, "text": ""}]},
            {"id": "cmpl-1", "model": "tiny", "choices": [{"index": 0, "text": " a"}]},
            {"choices": [{"index": 0, "text": " b", "finish_reason": "stop"}], "usage": None},
        ),
        {
            "bits": ROLE | ANSWER | FINISH,
            "token_events": 2,
            "finish_reasons": ["stop"],
            "response_id": "cmpl-1",
            "response_model": "tiny",
        },
    ),
    "responses": (
        typed(
            response("created", status="in_progress", usage=None),
            {"type": "response.output_item.added", "item": {}},
            delta("reasoning_text", "hm", sequence_number=3),
            delta("reasoning_summary_text", "hm", sequence_number=4),
            delta("output_text", sequence_number=5),
            delta("output_text", sequence_number=16),
            delta("output_text", ""),
            {"type": "response.output_text.done", "text": "HiHi"},
            response(
                "completed",
                status="completed",
                usage={
                    "input_tokens": 9,
                    "input_tokens_details": {"cached_tokens": 3},
                    "output_tokens": 4,
                    "output_tokens_details": {"reasoning_tokens": 2},
                },
            ),
        ),
        {
            "bits": ROLE | ANSWER | REASONING | USAGE | FINISH | END,
            "token_events": 4,
            "finish_reasons": ["completed"],
            "response_id": "resp_1",
            "response_model": "tiny",
            "usage": {
                "input_tokens": 9,
                "output_tokens": 4,
                "cached_tokens": 3,
                "reasoning_tokens": 2,
            },
        },
    ),
    "responses, other content": (
        typed(delta("refusal"), delta("output_audio"), delta("audio"), delta("audio_transcript")),
        {"bits": ANSWER, "token_events": 4},
    ),
    "responses, calls": (
        typed(
            delta("function_call_arguments", "{"),
            delta("mcp_call_arguments"),
            delta("custom_tool_call_input"),
            delta("code_interpreter_call_code"),
        ),
        {"bits": CALL, "token_events": 4},
    ),
    "responses, cut short": (
        typed(
            response(
                "incomplete",
                status="incomplete",
                incomplete_details={"reason": "max_output_tokens"},
            )
        ),
        {
            "bits": FINISH | END,
            "finish_reasons": ["max_output_tokens"],
            "response_id": "resp_1",
            "response_model": "tiny",
        },
    ),
    "responses, failed": (
        typed(response("failed", error={"code": "server_error", "message": "secret"})),
        {
            "bits": ERROR | END,
            "error_type": "server_error",
            "response_id": "resp_1",
            "response_model": "tiny",
        },
    ),
    "responses, error": (
        typed({"type": "error", "code": "rate_limit", "message": "secret"}),
        {"bits": ERROR, "error_type": "rate_limit"},
    ),
    "anthropic": (
        typed(
            {
                "type": "message_start",
                "message": {
                    "id": "msg_1",
                    "model": "claude",
                    "usage": {
                        "input_tokens": 5,
                        "cache_read_input_tokens": 100,
                        "cache_creation_input_tokens": 20,
                        "output_tokens": 1,
                    },
                },
            },
            {"type": "content_block_start", "content_block": {"type": "text", "text": ""}},
            {"type": "ping"},
            block(type="thinking_delta", thinking="hm"),
            block(type="signature_delta", signature="Eq"),
            block(type="text_delta", text="Hello"),
            block(type="text_delta", text="!"),
            block(type="text_delta", text=""),
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn"},
                "usage": {
                    "output_tokens": 15,
                },
            },
            {"type": "message_stop"},
        ),
        {
            "bits": ROLE | Seen.COMMENT | ANSWER | REASONING | USAGE | FINISH | END,
            "token_events": 3,
            "finish_reasons": ["end_turn"],
            "response_id": "msg_1",
            "response_model": "claude",
            "usage": {"input_tokens": 125, "output_tokens": 15, "cached_tokens": 100},
        },
    ),
    "anthropic, tool": (
        typed(
            {"type": "content_block_start", "content_block": {"type": "tool_use", "name": "f"}},
            block(type="input_json_delta", partial_json=""),
            block(type="input_json_delta", partial_json='{"city'),
        ),
        {"bits": ROLE | CALL, "token_events": 2},
    ),
    "anthropic, a tool without input": (
        typed({"type": "content_block_start", "content_block": {"type": "tool_use", "name": "f"}}),
        {"bits": ROLE | CALL, "token_events": 1},
    ),
    "responses, a call without arguments": (
        typed(
            {"type": "response.output_item.added", "item": {"type": "message", "name": "no call"}},
            {"type": "response.output_item.added", "item": {"type": "function_call", "name": "f"}},
        ),
        {"bits": ROLE | CALL, "token_events": 1},
    ),
    "anthropic, error": (
        typed({"type": "error", "error": {"type": "overloaded_error", "message": "secret"}}),
        {"bits": ERROR, "error_type": "overloaded_error"},
    ),
}


@pytest.mark.parametrize(("stream", "expected"), OTHER_STREAMS.values(), ids=OTHER_STREAMS)
def test_other_events(stream, expected):
    """Completions, Responses and Anthropic messages are told by their events."""
    assert same_at_every_line_end(stream) == expected


OLLAMA_STREAMS = {
    "chat": (
        ndjson(
            {"model": "llama", "message": {"role": "assistant", "content": ""}, "done": False},
            {"model": "llama", "message": {"thinking": "hm"}, "done": False},
            {"model": "llama", "message": {"content": "Hi"}, "done": False},
            {"message": {"tool_calls": [{"function": {"name": "f"}}]}, "done": False},
            {
                "message": {"content": ""},
                "done": True,
                "done_reason": "stop",
                "prompt_eval_count": 26,
                "eval_count": 3,
            },
        ),
        {
            "bits": ROLE | REASONING | CALL | USAGE | FINISH | END,
            "token_events": 3,
            "finish_reasons": ["stop"],
            "response_model": "llama",
            "usage": {"input_tokens": 26, "output_tokens": 3},
        },
    ),
    "generate": (
        ndjson(
            {"thinking": "hm", "response": "", "done": False},
            {"response": "Hi", "done": False},
            {"response": "", "done": True},
        ),
        {"bits": REASONING | ANSWER | END, "token_events": 2},
    ),
    "error": (ndjson({"error": "secret"}), {"bits": ERROR, "error_type": "error"}),
    "text sequence": (
        b'\x1e{"response":"Hi","done":false}\n\xef\xbb\xbf',
        {"bits": ANSWER, "token_events": 1},
    ),
}


@pytest.mark.parametrize(("stream", "expected"), OLLAMA_STREAMS.values(), ids=OLLAMA_STREAMS)
def test_json_lines(stream, expected):
    """Ollama's lines are told by their `done`."""
    assert same_at_every_line_end(stream, "ndjson") == expected


ERRORS = {
    "type": ({"error": {"type": "BadRequest", "code": 400, "message": "secret"}}, "BadRequest"),
    "code": ({"error": {"type": None, "code": 503}}, "503"),
    "word for code": ({"error": {"code": "busy"}}, "busy"),
    "no name": ({"error": {"message": "secret"}}, "error"),
    "absurd code": ({"error": {"code": 2**80}}, "error"),
    "text": ({"error": "secret"}, "error"),
    "object": ({"object": "error", "type": "invalid", "message": "secret"}, "invalid"),
    "long": ({"error": {"type": "x" * 99}}, "x" * 64),
}


@pytest.mark.parametrize(("event", "named"), ERRORS.values(), ids=ERRORS)
def test_error_in_a_stream(event, named):
    """An error in a stream of status 200 is named by type or code, never by its message."""
    expected = {"bits": ERROR | END, "error_type": named}
    if named in {"BadRequest", "503"}:  # their codes are HTTP statuses
        expected["error_status"] = event["error"]["code"]

    assert same_at_every_line_end(sse(event, "[DONE]")) == expected


@pytest.mark.parametrize("data", ['{"message":"secret","type":"error_type"}', "it broke"])
def test_error_by_event_name(data):
    """An event that is named error is one, whatever its data."""
    named = "error_type" if data.startswith("{") else "error"

    assert same_at_every_line_end(sse(data, event="error")) == {"bits": ERROR, "error_type": named}


def test_error_beside_choices():
    """An error that comes with choices counts with their finish reason; the first names it."""
    first = chat({"content": ""}, "error", error={"code": 502})
    result = observed([sse(first, {"error": {"code": 503}})])

    assert result == {
        **CHAT,
        "bits": ERROR | FINISH,
        "error_status": 502,
        "error_type": "502",
        "finish_reasons": ["error"],
    }


@pytest.mark.parametrize(
    "value", [True, 1.5, -1, "7", 2**53 + 1, 2**80, float("nan"), None, [], {}]
)
def test_hostile_counts(value):
    """A count that is no plausible integer is missing."""
    usage = {
        "prompt_tokens": value,
        "output_tokens": value,
        "prompt_tokens_details": {"cached_tokens": value},
        "output_tokens_details": value,
    }

    assert observed([sse({"choices": [], "usage": usage})]) == {"bits": ROLE}


@pytest.mark.parametrize(("value", "tokens"), [(0, 0), (12.0, 12), (2**53, 2**53)])
def test_a_whole_number_is_a_count_however_it_is_written(value, tokens):
    """A gateway whose language has one kind of number writes 12.0; the stream counts as the app."""
    assert observed([sse({"choices": [], "usage": {"completion_tokens": value}})]) == {
        "bits": USAGE,
        "usage": {"output_tokens": tokens},
    }


@pytest.mark.parametrize("value", [True, 1.5, "", None, [], [None], {}, {"a": 1}, 7])
@pytest.mark.parametrize(
    "stream",
    [
        '{"choices":@}',
        '{"choices":[@]}',
        '{"choices":[{"delta":@,"finish_reason":@,"text":@}],"usage":@,"id":@,"model":@}',
        '{"choices":[{"delta":{"content":@,"tool_calls":@,"function_call":@,"audio":@}}]}',
        '{"choices":[{"delta":{"content":[{"thinking":@,"text":@}],"tool_calls":[@]}}]}',
        '{"type":"message_start","message":@}',
        '{"type":"message_delta","delta":@}',
        '{"type":"content_block_delta","delta":@}',
        '{"type":"response.output_text.delta","delta":@}',
        '{"type":"response.incomplete","response":@}',
        '{"type":"response.incomplete","response":{"incomplete_details":@,"usage":@,"status":@}}',
        '{"type":@,"delta":@}',
        '{"done":@,"message":@,"response":@,"thinking":@}',
        '{"done":false,"message":{"content":@,"tool_calls":@}}',
    ],
)
def test_hostile_types(stream, value):
    """Values of any other type than expected are no tokens and do no harm."""
    result = observed([sse(stream.replace("@", json.dumps(value)))])

    assert not result["bits"] & Seen.TOKEN
    assert "malformed" not in result


def test_facts_are_bounded_and_encodable():
    """Strings are capped, lone surrogates replaced, finish reasons limited; the first id stays."""
    long = "\ud800" + "x" * 999
    escaped = json.dumps(long)
    chunk = f'{{"id":{escaped},"model":{escaped},"choices":[{{"finish_reason":{escaped}}}]}}'

    result = observed([sse(*[chunk] * 20, {"id": "other", "model": "other", "choices": []})])

    assert result == {
        "bits": FINISH | ROLE,
        "response_id": "?" + "x" * 255,
        "response_model": "?" + "x" * 255,
        "finish_reasons": ["?" + "x" * 63] * 16,
    }


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (
            {"prompt_tokens": 9, "cache_read_input_tokens": 4},
            {"input_tokens": 9, "cached_tokens": 4},
        ),
        (
            {"input_tokens": 9, "input_tokens_details": None, "cache_read_input_tokens": 4},
            {"input_tokens": 9, "cached_tokens": 4},
        ),
        ({"input_tokens": 0, "output_tokens": 0}, {"input_tokens": 0, "output_tokens": 0}),
        ({"cache_read_input_tokens": 4}, {"cached_tokens": 4}),
    ],
)
def test_cached_tokens_are_added_only_where_left_out(usage, expected):
    """The prompt's count includes cached tokens once, whoever reports them."""
    assert observed([sse({"usage": usage})]) == {"bits": USAGE, "usage": expected}


@pytest.mark.parametrize("data", ["{", "nonsense", "5", "null", '["a"]', "[" * 60_000, "9" * 9_000])
def test_malformed_events(data):
    """Data that is no JSON object is counted, and the stream goes on."""
    result = observed([sse(data, chat({"content": "Hi"}))])

    assert result == {**CHAT, "bits": ANSWER, "token_events": 1, "malformed": 1}
