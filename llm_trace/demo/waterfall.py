"""One request as a waterfall in text, drawn from the spans that were received."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from llm_trace.console import Style, bar, cut
from llm_trace.demo.width import WIDTH
from llm_trace.traces.spans import Span, tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llm_trace.demo.joined import Joined

_NAME: Final = 34
_NUMBERS: Final = 20


@dataclass(frozen=True, slots=True)
class Row:
    """A span's place in the drawing; seconds from the moment the client began."""

    depth: int
    name: str
    service: str
    start: float
    seconds: float


def rows(one: Joined) -> list[Row]:
    """Return the client's own row and under it every span of the trace."""
    client = Row(0, "request", "client", 0.0, one.answer.last or 0.0)
    return [client, *(_row(one, depth, span) for depth, span in tree(one.spans))]


def _row(one: Joined, depth: int, span: Span) -> Row:
    start = (span.start - one.answer.sent_wall_ns) / 1e9
    return Row(depth + 1, span.name, span.service, start, span.duration / 1e9)


def render(one: Joined, style: Style) -> Iterator[str]:
    """Yield the drawing's lines; `!` stands under the first token that the client saw."""
    drawn = rows(one)
    services = max(len("process"), *(len(row.service) for row in drawn)) + 1
    room = WIDTH - _NAME - services - _NUMBERS
    end = max(row.start + row.seconds for row in drawn) or 1.0
    head = f"{'span':<{_NAME}}{'process':<{services}}{'start ms':>9}{'took ms':>9}"
    yield style(head, "bold")
    for row in drawn:
        name = cut("  " * row.depth + row.name, _NAME - 1)
        numbers = f"{row.start * 1e3:>9.1f}{row.seconds * 1e3:>9.1f}"
        drawing = style(bar(row.start, row.seconds, end, room), "cyan")
        yield f"{name:<{_NAME}}{row.service:<{services}}{numbers}  {drawing}".rstrip()
    left = WIDTH - room
    yield _marker(left + min(int((one.answer.ttft or 0.0) / end * room), room - 1))


def _marker(column: int) -> str:
    """Point at the first token, with the words on the side that has room."""
    after, before = "! first token", "first token !"
    if column + len(after) <= WIDTH:
        return " " * column + after
    return " " * (column + 1 - len(before)) + before
