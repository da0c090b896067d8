"""Public methods of the clients' classes, replaced and put back.

A class is where clients that were built before and after are both reached. A wrapper that cannot
be taken off again, because somebody wrapped it in turn, stays and finds `on` false.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

Make = Callable[[Callable[..., Any]], Callable[..., Any]]

_MARK: Final = "_llm_trace_wrapper"


class Patches:
    """What is replaced now."""

    def __init__(self) -> None:
        self.on = False
        """Whether what is replaced is to do anything."""
        self._done: list[tuple[type, str, Callable[..., Any], Callable[..., Any]]] = []

    def wrap(self, owner: type, name: str, make: Make) -> None:
        """Replace `owner.name` by what `make` makes of it, once."""
        original = vars(owner).get(name)
        if original is None or hasattr(original, _MARK):
            return
        wrapper = functools.wraps(original)(make(original))
        setattr(wrapper, _MARK, True)
        setattr(owner, name, wrapper)
        self._done.append((owner, name, original, wrapper))

    def undo(self) -> None:
        """Put everything back that nobody has wrapped since."""
        self.on = False
        for owner, name, original, wrapper in reversed(self._done):
            if vars(owner).get(name) is wrapper:
                setattr(owner, name, original)
        self._done.clear()
