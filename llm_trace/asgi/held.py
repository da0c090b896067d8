"""The rest of an awaitable that has suspended once: by hand, so that only suspensions are timed.

A `send` that a slow client holds back suspends; one that is not held runs through. Its first step
is taken by the hot path itself, which costs less than a second clock read; where it suspends, the
rest is driven from here, exactly as `await` would.
"""

from __future__ import annotations

import types
from collections.abc import Generator
from functools import partial
from typing import Any


@types.coroutine
def rest_of(steps: Any, yielded: object) -> Generator[Any, Any, None]:
    """Await what is left of `steps`, which have just yielded `yielded`.

    What the event loop sends or throws in goes to `steps`, and what they raise comes out.

    Args:
        steps: What `__await__` of the awaitable gave.
        yielded: The first thing that it waits for.
    """
    while True:
        try:
            sent = yield yielded
        except GeneratorExit:
            _close(steps)
            raise
        except BaseException as error:
            if not hasattr(steps, "throw"):
                raise
            step = partial(steps.throw, error)
        else:
            step = partial(next, steps) if sent is None else partial(steps.send, sent)
        try:
            yielded = step()
        except StopIteration:
            return
        finally:
            del step  # an error in it would hold this frame, and this frame the error


def _close(steps: Any) -> None:
    close = getattr(steps, "close", None)
    if close is not None:
        close()
