"""A span as commands know it, wherever it came from; and a trace as a tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from llm_trace import semconv
from llm_trace.core import usage
from llm_trace.errors import LlmTraceError

MAX_SPANS: Final = 100_000
"""Read from one source."""
MAX_DEPTH: Final = 64
TRACE_DIGITS: Final = 32
"""Of an id, in hexadecimal."""


class TraceError(LlmTraceError):
    """What was read is no trace, or none that can be explained; the message says why."""


@dataclass(frozen=True, slots=True)
class Span:
    """One span; times in Unix ns."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    service: str
    start: int
    end: int
    attributes: Mapping[str, Any]

    @property
    def duration(self) -> int:
        """How long it lasted, ns."""
        return self.end - self.start

    @property
    def is_root(self) -> bool:
        """Whether it is llm_trace's span of a whole request."""
        return semconv.OUTCOME in self.attributes

    def number(self, name: str) -> float | None:
        """An attribute that is a finite number, or None."""
        value = self.attributes.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return value if -1e18 < value < 1e18 else None  # noqa: PLR2004 - NaN and infinities fail

    def count(self, name: str) -> int | None:
        """An attribute that is a whole number of things, or None."""
        return usage.count(self.attributes.get(name))

    def nanoseconds(self, name: str) -> int | None:
        """An attribute in seconds as ns, or None where it is absent or negative."""
        value = self.number(name)
        return round(value * 1e9) if value is not None and value >= 0 else None

    def text(self, name: str) -> str | None:
        """An attribute that is text, or None."""
        value = self.attributes.get(name)
        return value if isinstance(value, str) and value else None


def whole_id(trace_id: str) -> str:
    """A trace id as spans have it: Jaeger shows some without their leading zeros."""
    return trace_id.lower().zfill(TRACE_DIGITS)


def traces(spans: Iterable[Span]) -> dict[str, list[Span]]:
    """Spans by trace, each once, in the order of their start."""
    found: dict[str, dict[str, Span]] = {}
    for span in spans:
        found.setdefault(span.trace_id, {})[span.span_id] = span
    return {trace_id: sorted(each.values(), key=_by_start) for trace_id, each in found.items()}


def _by_start(span: Span) -> tuple[int, int, str]:
    return span.start, -span.end, span.span_id


def tree(spans: Iterable[Span]) -> Iterator[tuple[int, Span]]:
    """Depth first, by start, with each span's depth; an absent parent makes a top span.

    So does being one's own ancestor, and lying too deep.
    """
    ordered = sorted(spans, key=_by_start)
    shown: set[str] = set()
    for depth, span in _walk(ordered):
        shown.add(span.span_id)
        yield depth, span
    yield from ((0, span) for span in ordered if span.span_id not in shown)


def _walk(ordered: list[Span]) -> Iterator[tuple[int, Span]]:
    known = {span.span_id for span in ordered}
    children: dict[str, list[Span]] = {}
    for span in ordered:
        children.setdefault(span.parent_id if span.parent_id in known else "", []).append(span)
    stack = [(0, span) for span in reversed(children.pop("", []))]
    while stack:
        depth, span = stack.pop()
        yield depth, span
        if depth < MAX_DEPTH:
            below = children.pop(span.span_id, [])
            stack += [(depth + 1, child) for child in reversed(below)]


def inside(span: Span, spans: Iterable[Span]) -> list[Span]:
    """`span` and what lies below it."""
    ordered = list(spans)
    children: dict[str, list[Span]] = {}
    for each in ordered:
        children.setdefault(each.parent_id, []).append(each)
    found: dict[str, Span] = {span.span_id: span}
    waiting = [span]
    while waiting:
        for child in children.get(waiting.pop().span_id, []):
            if child.span_id not in found:
                found[child.span_id] = child
                waiting.append(child)
    return [each for each in ordered if each.span_id in found]
