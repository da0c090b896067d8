"""An ear on the app's own provider: spans of vector stores are retrievals of the request."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from llm_trace.setup import apps_provider

if TYPE_CHECKING:
    from llm_trace.observers.retrievals import Retrievals
    from llm_trace.observers.sink import SpanSink

_HEARD: Final = "_llm_trace_heard"


def hearing(
    find_sink: Callable[[], SpanSink | None], stores: tuple[str, ...]
) -> Callable[[], SpanSink | None]:
    """`find_sink`, and with it an ear on the app's provider, whenever it is set: for retrievals."""
    from llm_trace.observers.retrievals import Retrievals  # noqa: PLC0415 - lazy, as above

    retrievals = Retrievals(stores)
    last: object | None = None

    def find() -> SpanSink | None:
        nonlocal last
        provider = apps_provider.current()
        if provider is not last:
            last = provider
            _hear(provider, retrievals)
        return find_sink()

    return find


def _hear(provider: object, retrievals: Retrievals) -> None:
    """Let `provider` tell of its spans; once, however many apps of the process are traced."""
    if provider is None or getattr(provider, _HEARD, False):
        return
    from llm_trace.observers.sdk.provider import listen  # noqa: PLC0415 - the SDK is there by now

    listen(provider, retrievals.started, retrievals.ended)
    with suppress(AttributeError):  # a proxy may be slotted, and is no SDK provider
        setattr(provider, _HEARD, True)
