"""Results without a run: cells whose numbers a test chooses."""

from __future__ import annotations

from llm_trace.bench.plan import Cell, Plan
from llm_trace.bench.results import CellResult, Rates, Results
from llm_trace.bench.reuse import Reuse
from llm_trace.bench.stats import describe


def cell(concurrency, length, prefix, *, ttft=(), failed=0, **more):
    """A cell of these times to first token, in seconds."""
    given = {
        "tokens": float(length),
        "cancelled": 0,
        "reasons": {"status 429": failed} if failed else {},
        "server_ttft": None,
        "outside": None,
        "tpot": None,
        "duration": describe(ttft),
        "rates": Rates(float(len(ttft)), None, None),
        "good": None,
        "reuse": Reuse("confirmed", "usage", 0.0 if prefix == "new" else 0.9),
        "phases": None,
    }
    return CellResult(
        Cell(concurrency, length, prefix),
        ok=len(ttft),
        failed=failed,
        ttft=describe(ttft),
        **{**given, **more},
    )


def results(*cells, **more):
    """A run of these cells."""
    plan = Plan(
        lengths=tuple(sorted({one.cell.length for one in cells})) or (100,),
        concurrencies=tuple(sorted({one.cell.concurrency for one in cells})) or (1,),
        requests=3,
        max_tokens=2,
        max_requests=10_000,
        max_seconds=60.0,
        timeout=5.0,
    )
    given = {
        "ruler": "exact",
        "start_state": "loaded",
        "first": None,
        "warm_up": (),
        "prefill": None,
        "stopped": None,
    }
    return Results(plan=plan, cells=tuple(cells), **{**given, **more})
