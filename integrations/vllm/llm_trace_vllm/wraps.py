"""A look at the calls of one method of one instance: no class is patched, and nothing is changed.

An observer that fails is asked no more, and whoever sent it is told once, to give up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llm_trace.core import faults

Observe = Callable[..., None]
GiveUp = Callable[[], None]


def see_before(instance: Any, name: str, observe: Observe, give_up: GiveUp) -> None:
    """Let `observe` see the arguments of one method of `instance`, before it runs."""
    original = getattr(instance, name)
    look = _until_it_fails(name, observe, give_up)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        look(*args, **kwargs)
        return original(*args, **kwargs)

    setattr(instance, name, wrapped)


def see_after(instance: Any, name: str, observe: Observe, give_up: GiveUp) -> None:
    """Let `observe` see the result and the arguments of one method of `instance`."""
    original = getattr(instance, name)
    look = _until_it_fails(name, observe, give_up)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        look(result, *args, **kwargs)
        return result

    setattr(instance, name, wrapped)


def _until_it_fails(name: str, observe: Observe, give_up: GiveUp) -> Observe:
    """`observe`, whose first fault reaches nobody and is its last."""

    def look(*args: Any, **kwargs: Any) -> None:
        nonlocal observe
        try:
            observe(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - a fault here would end every request
            observe = _nothing
            give_up()
            faults.contain(f"vllm.{name}", error)

    return look


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    """What is left of an observer that met a surface that it does not know."""
