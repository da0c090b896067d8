"""How TraceQL is written: which requests a table of traces shows, and with which columns."""

from __future__ import annotations

from typing import Final

from dashboards import knobs
from llm_trace import semconv as s

CHOSEN: Final = f'span.{s.REQUEST_MODEL} =~ "$model"'
"""Requests for what the board's variable chooses; those that ended before they had a model miss."""

PARTS: Final = tuple(
    f"{s.TTFT_PHASE_PREFIX}{phase}"
    for phase in (s.ADMISSION, s.RETRIEVAL, s.MODEL_LOAD, s.QUEUE_WAIT, s.PREFILL, s.FIRST_TOKEN)
)
"""What the time to first token is made of, on the root span."""


TITLES: Final = {
    s.VERDICT: "verdict",
    s.TTFT: "TTFT",
    **{part: part.removeprefix(s.TTFT_PHASE_PREFIX) for part in PARTS},
    s.OUTCOME: "outcome",
    s.LAST_PHASE: "last phase",
    s.START_STATE: "start",
    s.ERROR_TYPE: "error",
    s.PREEMPTIONS: "preemptions",
    s.REQUEST_MODEL: "model",
    s.USAGE_INPUT_TOKENS: "prompt tokens",
    s.USAGE_CACHED_TOKENS: "of them cached",
}
"""What a column is called: an attribute's own name is too long to read."""

COUNTS: Final = (s.PREEMPTIONS, s.USAGE_INPUT_TOKENS, s.USAGE_CACHED_TOKENS)
"""What is no time, in a table whose numbers are seconds."""


def equal(attribute: str, value: str) -> str:
    """The condition of one value."""
    return f'span.{attribute} = "{value}"'


def one_of(attribute: str, *values: str) -> str:
    """The condition of any of `values`."""
    return f'span.{attribute} =~ "{"|".join(values)}"'


def above(attribute: str, number: float) -> str:
    """The condition of a number that is greater."""
    return f"span.{attribute} > {number:g}"


SLOW: Final = above(s.TTFT, knobs.TTFT_SECONDS)
"""Requests whose first token was later than the objective."""


def find(*conditions: str, show: tuple[str, ...]) -> str:
    """Spans that meet all conditions, with the attributes that a table shows of them."""
    columns = ", ".join(f"span.{attribute}" for attribute in show)
    return f"{{ {' && '.join(conditions)} }} | select({columns})"


def columns(query: str) -> list[str]:
    """The attributes that a query of `find` shows."""
    shown = query.rpartition("select(")[2].rstrip(")")
    return [column.removeprefix("span.") for column in shown.split(", ")]
