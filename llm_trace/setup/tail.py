"""Tail sampling: who decides about a finished request, and what holds its spans until then."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from llm_trace.setup import apps_provider

if TYPE_CHECKING:
    from llm_trace.core.record import RequestRecord
    from llm_trace.observers.sink import SpanSink
    from llm_trace.settings import Settings


def tail_of(
    settings: Settings, find_sink: Callable[[], SpanSink | None]
) -> tuple[Callable[[], SpanSink | None], Callable[[RequestRecord], RequestRecord] | None]:
    """`find_sink` as tail sampling needs it, and who decides; nobody where all is kept."""
    if settings.tail_share == 1:
        return find_sink, None
    from llm_trace.observers.held import Held, HoldingSink  # noqa: PLC0415
    from llm_trace.observers.tail import TailSampler  # noqa: PLC0415

    held = Held()
    last: tuple[SpanSink | None, SpanSink | None] = (None, None)

    def find() -> SpanSink | None:
        nonlocal last
        sink = find_sink()
        if sink is not last[0]:
            last = (sink, sink)
            if sink is apps_provider.sink() and sink is not None:
                last = (sink, HoldingSink(sink, held, apps_provider.current()))
        return last[1]

    def is_whole() -> bool:
        sink = find()
        return sink is not None and sink.takes_all

    sampler = TailSampler(
        settings.tail_share, settings.slow_ttft, settle=held.settle, is_whole=is_whole
    )
    return find, sampler
