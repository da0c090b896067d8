"""How a request ended, in one place: one word of a closed set, decided once.

Knows what the middleware saw of the ending; does not know how it saw it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Outcome = Literal["ok", "cancelled", "error", "rejected", "truncated", "timeout"]

FAULTS: Final = frozenset({"error", "timeout"})
"""Outcomes that make the root span's status ERROR."""

CANCELS: Final = frozenset({"CancelledError", "Cancelled", "GeneratorExit"})
"""How asyncio, trio and closed generators say that they were told to stop; by name, since neither
library need be loaded."""

TIMEOUT_STATUS: Final = frozenset({408, 504})
UNAVAILABLE: Final = 503
SUCCESS: Final = range(200, 300)
CLIENT_FAULT: Final = range(400, 500)
MAX_ERROR_TYPE: Final = 64
FAILED_FINISHES: Final = frozenset({"abort", "error"})
"""Finish reasons of an answer that its engine gave up, as vLLM and SGLang say it when they are
paused, put to sleep or fail; the client was there and got a part."""


@dataclass(slots=True)
class Ending:
    """What was seen of a request's end."""

    status: int = 0
    """HTTP status that was sent; 0 when no response was started."""
    complete: bool = False
    """The final body message was sent before the client left."""
    client_gone: bool = False
    """A disconnect, or an OSError from `send`, came before the final body message."""
    exception: BaseException | None = None
    """What the app raised before the final body message."""
    stream_error: str | None = None
    """`error.type` of an error inside the answer: an event of a stream, or in a document."""
    stream_status: int = 0
    """The HTTP status that this event gives: what the answer would have had, had it not begun."""
    unterminated: bool = False
    """A stream whose dialect has a finish or terminator ended without one."""
    finish_reasons: Sequence[str] = ()
    """Why the answer ended, as it says itself, choice by choice."""
    engine_reasons: Sequence[str | None] = ()
    """Why the engine of this server ended its calls: some dialects have no word for a failure."""
    handed_off: bool = False
    """An engine had the request."""


def decide(ending: Ending) -> tuple[Outcome, str | None]:
    """The outcome and, for every one but `ok` and `cancelled`, its `error.type`."""
    if not ending.complete:
        return _cut_short(ending)
    if ending.stream_error is not None:
        return _stream_failed(ending, ending.stream_error)
    if ending.status >= CLIENT_FAULT.start:
        return _refused(ending)
    if ending.unterminated:
        return "truncated", "truncated"
    reasons = (*ending.finish_reasons, *ending.engine_reasons)
    given_up = next((why for why in reasons if why in FAILED_FINISHES), None)
    return ("ok", None) if given_up is None else ("error", given_up)


def _cut_short(ending: Ending) -> tuple[Outcome, str | None]:
    error = ending.exception
    if ending.client_gone or (error is not None and is_cancel(error)):
        return "cancelled", None
    if error is not None:
        return ("timeout" if _is_timeout(error) else "error"), error_type(error)
    if ending.stream_error is not None:
        return _stream_failed(ending, ending.stream_error)
    return "truncated", "truncated"


def is_cancel(error: BaseException) -> bool:
    """Whether `error` is how code is told to stop, which is no fault of it."""
    return not any(map(_is_fault, _leaves(error)))


def _is_fault(error: BaseException) -> bool:
    return type(error).__name__ not in CANCELS


def _leaves(error: BaseException) -> list[BaseException]:
    """What a task group raised in one group, however deep; the error itself where it is none.

    By name: Python 3.10 has groups from a library only.
    """
    if all(kind.__name__ != "BaseExceptionGroup" for kind in type(error).__mro__):
        return [error]
    group: Sequence[BaseException] = getattr(error, "exceptions", ())
    return [leaf for one in group for leaf in _leaves(one)]


def _culprit(error: BaseException) -> BaseException:
    """The fault inside of a group, where all of its tasks that failed did so alike."""
    faults = [leaf for leaf in _leaves(error) if _is_fault(leaf)]
    return faults[0] if len({type(fault) for fault in faults}) == 1 else error


def _is_timeout(error: BaseException) -> bool:
    """Libraries have their own: asyncio's before Python 3.11, httpx.ReadTimeout, and more."""
    fault = _culprit(error)
    name = type(fault).__name__
    return isinstance(fault, TimeoutError) or name.endswith(("Timeout", "TimeoutError"))


def _stream_failed(ending: Ending, stream_error: str) -> tuple[Outcome, str]:
    """A server that streams says 200 before it asks its engine, and a refusal comes as an event."""
    kind = stream_error[:MAX_ERROR_TYPE] or "error"
    if "timeout" in kind.lower():
        return "timeout", kind
    refused = ending.stream_status and not ending.handed_off
    return (_by_status(ending.stream_status, ending) if refused else "error"), kind


def _refused(ending: Ending) -> tuple[Outcome, str]:
    return _by_status(ending.status, ending), str(ending.status)


def _by_status(status: int, ending: Ending) -> Outcome:
    if status in TIMEOUT_STATUS:
        return "timeout"
    if status in CLIENT_FAULT or (status == UNAVAILABLE and not ending.handed_off):
        return "rejected"
    return "error"


def error_type(error: BaseException) -> str:
    """The class name of `error`, qualified unless it is a built-in, and bounded.

    What a task group wraps is named as if it had been raised without one.
    """
    kind = type(_culprit(error))
    name = kind.__qualname__
    if kind.__module__ not in {"builtins", "__main__"}:
        name = f"{kind.__module__}.{name}"
    return name[-MAX_ERROR_TYPE:]
