"""Queries that split the time to first token into its phases, on a board.

The parts sum to the whole, because all are means over the same requests.
"""

from __future__ import annotations

from dashboards import panels as p
from dashboards import queries as q
from llm_trace import semconv as s


def asked(expr: str, *, exemplar: bool = False) -> p.Query:
    """A query whose series are phases."""
    return p.Query(expr, "{{" + q.PHASE + "}}", exemplar)


def mean(*where: str, window: str = q.STEP, offset: str = "") -> str:
    """Mean seconds of TTFT in each phase; summed over phases it is the mean TTFT."""
    when = f"{window}] offset {offset}" if offset else f"{window}]"
    seconds = f"increase({q.shown(s.TTFT_PHASE, *where)}[{when})"
    requests = f"increase({q.shown(s.TTFT_REQUESTS, *where)}[{when})"
    return q.share(q.total(seconds, q.PHASE), q.total(requests))


def change() -> str:
    """Those means over what is shown, less those of the same stretch before it."""
    now = f"({mean(window=q.WHOLE)})"
    before = f"({mean(window=q.WHOLE, offset=q.WHOLE)})"
    return f"{now} - ({before} or {now} * 0)"


def shares(*where: str) -> str:
    """Each phase's part of all the seconds before first tokens."""
    part = q.total(q.rate(q.shown(s.TTFT_PHASE, *where)), q.PHASE)
    return q.share(part, q.total(q.rate(q.shown(s.TTFT_PHASE))))
