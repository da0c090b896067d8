"""How a request ended: one word, decided in one place."""

import asyncio
import builtins
import http
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_trace import semconv as s
from llm_trace.core.outcome import MAX_ERROR_TYPE, Ending, decide, error_type


class LibraryError(Exception):
    """Stands for an exception of some library."""


class Cancelled(BaseException):
    """What trio raises, by name."""


THIS = f"{__name__}.LibraryError"

Group = (
    vars(builtins).get("BaseExceptionGroup") or import_module("exceptiongroup").BaseExceptionGroup
)
"""What task groups raise; Python 3.10 has it from the library that its task groups come with."""
MIXED = "ExceptionGroup" if hasattr(builtins, Group.__name__) else "exceptiongroup.ExceptionGroup"


def grouped(*errors):
    """The errors of the tasks of a group."""
    return Ending(status=200, exception=Group("unhandled errors in a TaskGroup", errors))


def _event(status, kind, **more):
    """A stream of status 200 that ends with an error event."""
    return Ending(status=200, complete=True, stream_error=kind, stream_status=status, **more)


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        (Ending(status=200, complete=True), ("ok", None)),
        (Ending(status=302, complete=True), ("ok", None)),
        (Ending(status=200, complete=True, exception=LibraryError()), ("ok", None)),
        (Ending(status=200, complete=True, unterminated=True), ("truncated", "truncated")),
        (Ending(status=200, complete=True, finish_reasons=["stop", "abort"]), ("error", "abort")),
        (Ending(status=200, complete=True, finish_reasons=["error"]), ("error", "error")),
        (Ending(status=200, complete=True, engine_reasons=[None, "abort"]), ("error", "abort")),
        (Ending(status=200, complete=True, finish_reasons=["length", "stop"]), ("ok", None)),
        (Ending(status=200, client_gone=True, finish_reasons=["abort"]), ("cancelled", None)),
        (Ending(status=200), ("truncated", "truncated")),
        (Ending(), ("truncated", "truncated")),
        (Ending(status=200, client_gone=True), ("cancelled", None)),
        (Ending(status=500, client_gone=True), ("cancelled", None)),
        (Ending(client_gone=True, exception=LibraryError()), ("cancelled", None)),
        (Ending(client_gone=True, stream_error="boom"), ("cancelled", None)),
        (Ending(exception=asyncio.CancelledError()), ("cancelled", None)),
        (Ending(exception=Cancelled()), ("cancelled", None)),
        (Ending(exception=GeneratorExit()), ("cancelled", None)),
        (Ending(status=200, exception=LibraryError()), ("error", THIS)),
        (Ending(exception=ValueError()), ("error", "ValueError")),
        (Ending(exception=KeyboardInterrupt()), ("error", "KeyboardInterrupt")),
        (Ending(exception=TimeoutError()), ("timeout", "TimeoutError")),
        (Ending(status=200, stream_error="server_error"), ("error", "server_error")),
        (Ending(status=200, complete=True, stream_error="server_error"), ("error", "server_error")),
        (Ending(status=200, complete=True, stream_error="Timeout"), ("timeout", "Timeout")),
        (Ending(status=200, complete=True, stream_error=""), ("error", "error")),
        (_event(503, "Service Unavailable"), ("rejected", "Service Unavailable")),
        (_event(503, "Service Unavailable", handed_off=True), ("error", "Service Unavailable")),
        (_event(429, "RateLimitError"), ("rejected", "RateLimitError")),
        (_event(400, "BadRequestError", handed_off=True), ("error", "BadRequestError")),
        (_event(500, "InternalServerError"), ("error", "InternalServerError")),
        (_event(504, "GatewayError"), ("timeout", "GatewayError")),
        (Ending(status=400, complete=True), ("rejected", "400")),
        (Ending(status=401, complete=True), ("rejected", "401")),
        (Ending(status=429, complete=True), ("rejected", "429")),
        (Ending(status=499, complete=True), ("rejected", "499")),
        (Ending(status=400, complete=True, handed_off=True), ("rejected", "400")),
        (Ending(status=503, complete=True), ("rejected", "503")),
        (Ending(status=503, complete=True, handed_off=True), ("error", "503")),
        (Ending(status=500, complete=True), ("error", "500")),
        (Ending(status=502, complete=True, unterminated=True), ("error", "502")),
        (Ending(status=408, complete=True), ("timeout", "408")),
        (Ending(status=504, complete=True), ("timeout", "504")),
    ],
)
def test_each_ending_has_one_outcome(ending, expected):
    """The client leaving, a fault, a refusal, a cut stream and a success are different words."""
    assert expected == decide(ending)


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        (grouped(TimeoutError()), ("timeout", "TimeoutError")),
        (grouped(Group("inner", [TimeoutError()]), TimeoutError()), ("timeout", "TimeoutError")),
        (grouped(LibraryError(), Cancelled()), ("error", THIS)),
        (grouped(GeneratorExit()), ("cancelled", None)),
        (grouped(Cancelled(), asyncio.CancelledError()), ("cancelled", None)),
        (grouped(LibraryError(), ValueError()), ("error", MIXED)),
    ],
)
def test_what_a_task_group_wraps_is_judged_as_without_it(ending, expected):
    """An app that calls its engine in a group is told of the engine's fault, not of the group's."""
    assert expected == decide(ending)


endings = st.builds(
    Ending,
    status=st.one_of(st.sampled_from([0, *http.HTTPStatus]).map(int), st.integers(0, 999)),
    complete=st.booleans(),
    client_gone=st.booleans(),
    exception=st.sampled_from([None, ValueError(), TimeoutError(), Cancelled(), GeneratorExit()]),
    stream_error=st.one_of(st.none(), st.text(max_size=99)),
    unterminated=st.booleans(),
    finish_reasons=st.lists(st.sampled_from(["stop", "abort", "error", ""]), max_size=3),
    engine_reasons=st.lists(st.sampled_from(["stop", "abort", "error", None]), max_size=3),
    handed_off=st.booleans(),
)


@given(endings)
def test_any_ending_has_an_outcome_of_the_closed_set(ending):
    """Whatever was seen, the outcome is in the vocabulary and its error type is bounded."""
    outcome, kind = decide(ending)

    assert outcome in s.OUTCOMES
    assert (outcome in {"ok", "cancelled"}) == (kind is None)
    assert kind is None or 0 < len(kind) <= MAX_ERROR_TYPE


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("secret"), "ValueError"),
        (LibraryError("secret"), THIS),
        (type("E" * 200, (Exception,), {})(), "E" * MAX_ERROR_TYPE),
        (type("Own", (Exception,), {"__module__": "__main__"})(), "Own"),
    ],
)
def test_an_error_type_is_a_bounded_name(error, expected):
    """It is the class and its module, never the message."""
    assert expected == error_type(error)
