"""One fixed colour for each phase, outcome and start state, the same on every board.

Waits before the engine are blues, the engine's own are warm, delivery is green; grey is time that
nobody explains.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from llm_trace import semconv as s

PHASES: Final[Mapping[str, str]] = {
    s.ADMISSION: "#8AB8FF",
    s.RETRIEVAL: "#3274D9",
    s.MODEL_LOAD: "#8F3BB8",
    s.PREPARE: "#6ED0E0",
    s.GENERATION: "#B877D9",
    s.NETWORK: "#B0B5D1",
    s.QUEUE_WAIT: "#E02F44",
    s.PREFILL: "#FF9830",
    s.ENGINE: "#C4A000",
    s.FIRST_TOKEN: "#37872D",
    s.DECODE: "#73BF69",
    s.FINISH: "#C0D8B0",
    s.UNATTRIBUTED: "#7B7B7B",
    s.OTHER: "#A352CC",
}

OUTCOMES: Final[Mapping[str, str]] = {
    "ok": "#56A64B",
    "cancelled": "#FF9830",
    "error": "#E02F44",
    "rejected": "#8F3BB8",
    "truncated": "#C4A000",
    "timeout": "#C4162A",
}

START_STATES: Final[Mapping[str, str]] = {
    "cold": "#1F60C4",
    "warm": "#F2CC0C",
    "partial": "#96D98D",
    "cached": "#37872D",
    "unknown": "#7B7B7B",
}

FINISHED: Final[Mapping[str, str]] = {
    "stop": "#56A64B",
    "length": "#96D98D",
    "repetition": "#C4A000",
    "abort": "#FF9830",
    "error": "#E02F44",
}
"""Why vLLM says that a request ended."""

OBJECTIVE: Final = "#9FA7B3"
"""The line that a latency should stay under: dashed, and in no colour that means a quantile."""

QUANTILES: Final[Mapping[str, str]] = {
    "p50": "#73BF69",
    "p95": "#FF9830",
    "p99": "#E02F44",
    "objective": OBJECTIVE,
}
