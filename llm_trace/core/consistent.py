"""Consistent probability sampling: what a trace's own randomness says, and how it is written down.

By OpenTelemetry's specification of `tracestate`: 56 random bits of the trace (its id's last, or
`rv`) are compared with a threshold, so that all who sample a trace by the same share agree; and the
threshold travels with each span (`th`), so that who counts spans knows how many each stands for.
"""

from __future__ import annotations

from typing import Final

from llm_trace.core.identity import TraceIdentity

VENDOR: Final = "ot"
_DIGITS: Final = 14
_ALL: Final = 16**_DIGITS
_HEX: Final = frozenset("0123456789abcdef")


def threshold(share: float) -> int:
    """Below which randomness a trace is left out, for this share of traces to be kept."""
    return round((1 - share) * _ALL)


def randomness(identity: TraceIdentity) -> int:
    """The 56 random bits of a trace."""
    given = _bits(_vendor(identity.trace_state).get("rv", ""))
    return identity.trace_id % _ALL if given is None else given


def threshold_of(trace_state: str) -> int | None:
    """The threshold by which a trace was sampled so far; None where nobody wrote it."""
    told = _vendor(trace_state).get("th", "")
    return _bits(told.ljust(_DIGITS, "0")) if told else None


def with_threshold(trace_state: str, threshold: int) -> str:
    """`trace_state` with this threshold, its own entry first, as one that was changed."""
    digits = f"{threshold:0{_DIGITS}x}".rstrip("0") or "0"
    told = {**_vendor(trace_state), "th": digits}
    ours = f"{VENDOR}={';'.join(f'{key}:{value}' for key, value in told.items())}"
    others = [m for m in _members(trace_state) if m.partition("=")[0].strip() != VENDOR]
    return ",".join([ours, *others])


def _members(trace_state: str) -> list[str]:
    return [member for member in trace_state.split(",") if member.strip()]


def _vendor(trace_state: str) -> dict[str, str]:
    """The keys and values of OpenTelemetry's own entry."""
    for member in _members(trace_state):
        name, _, value = member.strip().partition("=")
        if name == VENDOR:
            pairs = (pair.partition(":") for pair in value.split(";"))
            return {key: told for key, colon, told in pairs if colon}
    return {}


def _bits(text: str) -> int | None:
    return int(text, 16) if len(text) == _DIGITS and _HEX.issuperset(text) else None
