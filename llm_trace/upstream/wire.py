"""What goes onto the wire beside the app's own headers: the call's trace context, and the ask."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from llm_trace import context
from llm_trace.core import inband
from llm_trace.core.engine_call import EngineCall


def headers_of(call: EngineCall, present: Mapping[str, str], *, ask: bool) -> dict[str, str]:
    """Our headers for a request of `call` that has `present` ones already.

    Args:
        call: Becomes the parent of what the engine traces, unless the app chose another.
        present: What the app put there.
        ask: Whether to ask for the ledger; what the app asks for itself is its own, but not where
            it hands its own caller's headers on.
    """
    ours = call.headers()
    parent = present.get("traceparent")
    if parent is not None and not _is_ours(parent, ours):
        ours = {}
    if ask and (inband.HEADER not in present or _is_handed_on()):
        ours[inband.HEADER] = inband.ASKED
    return ours


def _is_handed_on() -> bool:
    """Whether our own caller asks: the app's answer carries our ledger, so no engine's may too."""
    return (inband.HEADER.encode(), inband.ASKED.encode()) in context.current().carrier


def _is_ours(parent: str, ours: Mapping[str, str]) -> bool:
    """Whether a `traceparent` names a place of ours that the call's own is more exact than."""
    timeline = context.current()
    known = (ours, timeline.headers(), context.headers())
    return parent in {headers.get("traceparent") for headers in known}


def dress(headers: MutableMapping[str, str], ours: Mapping[str, str]) -> dict[str, str | None]:
    """Put `ours` into `headers`; what `undress` needs to know."""
    before = {name: headers.get(name) for name in ours}
    headers.update(ours)
    return before


def undress(headers: MutableMapping[str, str], before: Mapping[str, str | None]) -> None:
    """Leave `headers` as the app had them: it may send them again."""
    for name, value in before.items():
        if value is not None:
            headers[name] = value
        elif name in headers:
            del headers[name]


def clean(headers: MutableMapping[str, str]) -> None:
    """Take the ledger out of an answer's `headers`: the app may hand them on to anybody."""
    rest = inband.other_timings(headers.get(inband.SERVER_TIMING, ""))
    for name in (inband.HEADER, inband.SERVER_TIMING):
        if name in headers:
            del headers[name]
    if rest:
        headers[inband.SERVER_TIMING] = rest
