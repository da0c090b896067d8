"""Whether a request that the app sends is a call of an engine, and of which call it is a part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from llm_trace import context
from llm_trace import semconv as s
from llm_trace.core import faults
from llm_trace.core.engine_call import EngineCall
from llm_trace.core.timeline import Timeline
from llm_trace.settings import Settings
from llm_trace.upstream.asked import Body, asked
from llm_trace.upstream.attempt import Attempt, is_sending
from llm_trace.upstream.targets import Url, operation_of

MAX_FAILURES: Final = 16


class UpstreamCall(EngineCall):
    """A call that the app's client made, known again when the client tries once more."""

    __slots__ = ("request",)

    request: tuple[object, ...]
    """Equal for two attempts of the same."""


def begin(method: str, make_url: Callable[[], Url], read: Callable[[], Body]) -> Attempt | None:
    """The attempt that a request of the app is; None where it is no call of an engine.

    Args:
        method: The HTTP method, in any case.
        make_url: Gives the URL; not asked outside of traced requests.
        read: Gives the body, b"" where it is not known yet; not asked for other requests.
    """
    timeline = context.current()
    if timeline.closed or is_sending(timeline):
        return None
    try:
        settings = timeline.settings
        if settings is None or not settings.upstream or method.upper() != "POST":
            return None
        url = make_url()
        operation = operation_of(settings, url)
        return _attempt(timeline, settings, operation, url, read()) if operation else None
    except Exception as error:  # noqa: BLE001 - rule 1: never hurt the host
        faults.contain("upstream", error)
        return None


def _attempt(
    timeline: Timeline, settings: Settings, operation: str, url: Url, body: Body
) -> Attempt:
    opened = context.open_call()
    call = opened or _call(timeline, operation, url, body, settings.max_body_bytes)
    call.source = "upstream"
    call.attributes[s.SERVER_ADDRESS] = url.host
    call.attributes[s.SERVER_PORT] = url.port
    _try_again(call, timeline.clock.monotonic_ns())
    return Attempt(
        call, owned=opened is None, ask=settings.ledger_in_band, limit=settings.max_body_bytes
    )


def _call(timeline: Timeline, operation: str, url: Url, body: Body, limit: int) -> EngineCall:
    request = (url, len(body), hash(body if isinstance(body, bytes) else repr(body)))
    failed = _failed(timeline, request)
    if failed is not None:
        return failed
    model, attributes = asked(body, limit)
    call = UpstreamCall(timeline, operation, model, source="upstream", attributes=attributes)
    call.parent_span_id = context.place()
    call.request = request
    call.__enter__()  # its end is the answer's, in another place of the code
    return call


def _failed(timeline: Timeline, request: tuple[object, ...]) -> EngineCall | None:
    """The call of which `request` is one more attempt: the same, after it failed with no token."""
    for call in reversed(timeline.calls):
        if isinstance(call, UpstreamCall) and call.request == request and _may_go_on(call):
            return call
    return None


def _may_go_on(call: EngineCall) -> bool:
    return bool(call.returned and call.error_type and not call.first_token)


def _try_again(call: EngineCall, now: int) -> None:
    """Say on a call that failed that it is tried again; on a new one there is nothing to say."""
    if not call.error_type or call.first_token:
        return
    said = call.attributes
    failures = said.get(s.UPSTREAM_FAILURES, ())
    failures = (*failures, call.error_type) if isinstance(failures, tuple) else (call.error_type,)
    said[s.UPSTREAM_FAILURES] = failures[-MAX_FAILURES:]
    said[s.HTTP_RESEND_COUNT] = len(failures)
    said[s.UPSTREAM_RETRY] = (now - call.handed_off) / 1e9
    call.error_type = None
    call.returned = call.first_byte = 0
