"""One request as the client, the app and the engine each saw it, joined by trace id.

The app's ledger calls the stretch from its hand-off to the first token `engine`. The engine's
process keeps a ledger of that same stretch, so it takes its place here, and what the two do not
share is `network`: connection, loopback and the event loops on the way there and back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from llm_trace import semconv
from llm_trace.demo.engine import APP_SERVICE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from llm_trace.demo.client import Answer
    from llm_trace.traces.spans import Span

APP: Final = "app"
ENGINE: Final = "engine"
BETWEEN: Final = "between"
NETWORK: Final = semconv.NETWORK

_APP_BEFORE: Final = (
    semconv.ADMISSION,
    semconv.RETRIEVAL,
    semconv.MODEL_LOAD,
    semconv.PREPARE,
    semconv.GENERATION,
    semconv.QUEUE_WAIT,
    semconv.PREFILL,
    semconv.ENGINE,
)
_TAKEN: Final = frozenset({semconv.NETWORK, semconv.QUEUE_WAIT, semconv.PREFILL, semconv.ENGINE})
"""What the app's ledger calls the stretch of which the engine has a ledger of its own."""
_INSIDE: Final = tuple(
    phase for phase in semconv.PHASES if phase not in {semconv.DECODE, semconv.FINISH}
)


class Line(NamedTuple):
    """A stretch of the TTFT: who measured it and what it was."""

    source: str
    phase: str


LINES: Final = (
    *(Line(APP, phase) for phase in _APP_BEFORE),
    Line(BETWEEN, NETWORK),
    *(Line(ENGINE, phase) for phase in _INSIDE),
    Line(APP, semconv.FIRST_TOKEN),
    Line(APP, semconv.UNATTRIBUTED),
)
"""Every line there can be, in the order in which a request lives through them."""


@dataclass(frozen=True, slots=True)
class Joined:
    """One request whose ledgers were found."""

    answer: Answer
    parts: dict[Line, float]
    """Seconds; they add up to the TTFT that the app measured."""
    app: Mapping[str, Any]
    """Attributes of the app's root span."""
    engine: Mapping[str, Any]
    """Attributes of the engine's root span."""
    spans: tuple[Span, ...]

    @property
    def total(self) -> float:
        """Sum of the parts."""
        return sum(self.parts.values())

    @property
    def difference(self) -> float:
        """What the client waited beyond the sum: loopback and the client's own event loop."""
        return (self.answer.ttft or 0.0) - self.total


def join(answer: Answer, spans: Iterable[Span]) -> Joined | None:
    """Join the client's answer with its trace; None when the app's ledger is not in it."""
    whole = tuple(spans)
    app = root(whole, APP_SERVICE)
    if app is None or semconv.TTFT not in app.attributes or not answer.ok:
        return None
    inner = _inner_root(whole)
    engine = inner.attributes if inner else {}
    return Joined(answer, _parts(app.attributes, engine), app.attributes, engine, whole)


def root(spans: Iterable[Span], service: str) -> Span | None:
    """Return llm_trace's span for the request in one process."""
    return next((span for span in spans if span.is_root and span.service == service), None)


def _inner_root(spans: Iterable[Span]) -> Span | None:
    return next((span for span in spans if span.is_root and span.service != APP_SERVICE), None)


def _parts(app: Mapping[str, Any], engine: Mapping[str, Any]) -> dict[Line, float]:
    outer, inner = _ttft_phases(app), _ttft_phases(engine)
    parts: dict[Line, float] = {}
    if inner and not _TAKEN.isdisjoint(outer):
        hop = _take_out(outer, inner.get(semconv.FIRST_TOKEN, 0.0)) - sum(inner.values())
        parts[Line(BETWEEN, NETWORK)] = hop
        parts.update((Line(ENGINE, phase), seconds) for phase, seconds in inner.items())
    parts.update((Line(APP, phase), seconds) for phase, seconds in outer.items())
    return parts


def _take_out(outer: dict[str, float], delivery: float) -> float:
    """Take the engine's stretch out of the app's ledger; its seconds.

    Where the engine told its ledger in band the app's ledger is split already, and its
    `first_token` begins with the engine's own delivery.
    """
    told = semconv.NETWORK in outer
    taken = sum(outer.pop(phase, 0.0) for phase in _TAKEN)
    delivered = min(delivery, outer.get(semconv.FIRST_TOKEN, 0.0)) if told else 0.0
    if delivered:
        outer[semconv.FIRST_TOKEN] -= delivered
    return taken + delivered


def _ttft_phases(attributes: Mapping[str, Any]) -> dict[str, float]:
    prefix = semconv.TTFT_PHASE_PREFIX
    return {
        key.removeprefix(prefix): float(value)
        for key, value in attributes.items()
        if key.startswith(prefix)
    }


def lines(joined: Iterable[Joined]) -> Iterator[Line]:
    """List the lines that any of the requests has, known ones first and in order."""
    seen = {line for one in joined for line, seconds in one.parts.items() if seconds}
    yield from (line for line in LINES if line in seen)
    yield from sorted(seen.difference(LINES))
