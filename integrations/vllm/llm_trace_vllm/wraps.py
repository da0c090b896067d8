"""A look at the calls of one method of one instance: no class is patched, and nothing is changed.

An observer that fails is asked no more, and whoever sent it is told once, to give up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llm_trace.core import faults


def see_before(
    instance: Any, name: str, observe: Callable[..., None], give_up: Callable[[], None]
) -> None:
    """Let `observe` see the arguments of one method of `instance`, before it runs."""
    original = getattr(instance, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal observe
        try:
            observe(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - a fault here would end every request
            observe = _nothing
            give_up()
            faults.contain(f"vllm.{name}", error)
        return original(*args, **kwargs)

    setattr(instance, name, wrapped)


def see_after(
    instance: Any, name: str, observe: Callable[..., None], give_up: Callable[[], None]
) -> None:
    """Let `observe` see the result and the arguments of one method of `instance`."""
    original = getattr(instance, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal observe
        result = original(*args, **kwargs)
        try:
            observe(result, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - a fault here would end every request
            observe = _nothing
            give_up()
            faults.contain(f"vllm.{name}", error)
        return result

    setattr(instance, name, wrapped)


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    """What is left of an observer that met a surface that it does not know."""
