"""A comparison as one JSON document: seconds, shares from 0 to 1, null where nothing is known."""

from __future__ import annotations

from typing import Any, Final

from llm_trace._version import __version__
from llm_trace.diff.blocks import Data
from llm_trace.diff.comparison import Comparison
from llm_trace.diff.screen import verdict

SCHEMA: Final = "llm-trace.diff/1"


def document(comparison: Comparison) -> dict[str, Any]:
    """Everything that the screen shows."""
    whole = comparison.ttft
    return {
        "schema": SCHEMA,
        "version": __version__,
        "verdict": verdict(comparison),
        "slower": comparison.slower,
        "a": _side(comparison.a),
        "b": _side(comparison.b),
        "ttft": {
            "a": whole.a,
            "b": whole.b,
            "change": whole.change._asdict(),
            "word": whole.word,
            "quantiles": {name: {"a": a, "b": b} for name, (a, b) in whole.quantiles.items()},
        },
        "phases": [
            {
                "phase": phase.phase,
                "a": phase.a,
                "b": phase.b,
                "change": phase.change._asdict(),
                "p": phase.p,
                "shape_p": phase.shape_p,
                "word": phase.word,
            }
            for phase in comparison.phases
        ],
        "others": {name: {"a": a, "b": b} for name, (a, b) in comparison.others.items()},
    }


def _side(data: Data) -> dict[str, Any]:
    side = data.side
    return {
        "text": side.text,
        "labels": dict(side.labels),
        "start": side.start,
        "end": side.end,
        "first_tokens": data.count,
        "blocks": len(data.requests),
        "blocks_with_requests": sum(n > 0 for n in data.requests),
    }
