"""Ends by signal: every one runs the clean-up, and none cuts the clean-up in half."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager
    from types import FrameType

ENDS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SHELL_BASE: Final = 128


def terminable() -> AbstractContextManager[None]:
    """Turn SIGTERM and SIGHUP into SystemExit, so that they unwind the stack as Ctrl-C does."""
    return _handled((signal.SIGTERM, signal.SIGHUP), _leave)


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(_SHELL_BASE + number)


@contextmanager
def deferred() -> Iterator[None]:
    """Let no signal end the block early: the first that comes meanwhile takes effect after it.

    A Python handler and not SIG_IGN, because programs started in the block inherit the latter.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    with _handled(ENDS, lambda number, _: came.append(number)):
        yield
    if came:
        signal.raise_signal(came[0])


@contextmanager
def _handled(
    numbers: Iterable[signal.Signals], handler: Callable[[int, FrameType | None], object]
) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, theirs in before.items():
            signal.signal(number, theirs)
