"""Where engine integrations leave word that they want to see the server that they run in.

An integration is loaded by its engine, often before any request; the middleware cannot import it.
So it leaves a hook here, and the first request of each server hands the hook its ASGI scope.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from llm_trace.core.timeline import Timeline

from llm_trace.core import faults


class Live(Protocol):
    """Whoever knows which requests are in flight."""

    live: set[Timeline]


class Joined(Protocol):
    """An engine whose requests are joined to those of this process."""

    tier: str
    """How much it tells, in a word of a closed set."""

    @property
    def clock_is_foreign(self) -> bool:
        """Whether its stamps were found to be of another clock than ours."""


Hook = Callable[[MutableMapping[str, Any]], None]

_hooks: list[Hook] = []

served_models: set[str] = set()
"""Model names that an integrated engine serves: safe metric labels."""


class Engine(NamedTuple):
    """What an engine says of itself; None where it does not."""

    model_config: Mapping[str, Any] | None = None
    """The fields of the model's `config.json`."""
    device: str | None = None
    """As its driver names it."""
    tensor_parallel: int = 1
    cache_type: str | None = None
    """Data type of the KV cache; `auto`: the model's."""
    slots: int | None = None
    """Requests that it runs at once."""
    step_tokens: int | None = None
    """Tokens that one step computes at most."""
    prefix_caching: bool | None = None


described: list[Engine] = []
"""What the engine of this process said, once it has; the latest of several."""

joined: weakref.WeakSet[Any] = weakref.WeakSet()
"""The engines of this process that are joined, each a `Joined`, as long as they live."""

_watched: weakref.WeakSet[Live] = weakref.WeakSet()


def on_first_request(hook: Hook) -> None:
    """Call `hook` with the ASGI scope of the first request that each middleware sees."""
    _hooks.append(hook)


def describe(engine: Engine) -> None:
    """An engine says what it is."""
    described[:] = [engine]


def meet(scope: MutableMapping[str, Any]) -> None:
    """Hand `scope` to every hook; a hook's fault is contained."""
    for hook in tuple(_hooks):
        try:
            hook(scope)
        except Exception as error:  # noqa: BLE001 - rule 1: never hurt the host
            faults.contain("engine_hook", error)


def watch(requests: Live) -> None:
    """Let integrations see the requests of a dispatch, as long as it exists."""
    _watched.add(requests)


def oldest_waiting() -> int | None:
    """When the oldest request not known to be begun was handed off, monotonic ns."""
    return min(
        [
            call.handed_off
            for timeline in live_requests()
            for call in tuple(timeline.calls)
            if call.handed_off and not (call.returned or call.first_token or call.stamps()[1])
        ],
        default=None,
    )


def live_requests() -> Iterator[Timeline]:
    """Every request in flight in this process."""
    for requests in tuple(_watched):
        yield from tuple(requests.live)


def _forked() -> None:
    """What is in flight is its parent's: nobody here will see the end of it."""
    for requests in tuple(_watched):
        requests.live.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
