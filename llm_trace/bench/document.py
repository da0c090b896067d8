"""A run as one JSON document: seconds, shares from 0 to 1, and null where nothing is known."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any, Final

from llm_trace._version import __version__
from llm_trace.bench.fit import Fit
from llm_trace.bench.gates import Check
from llm_trace.bench.results import CellResult, Results
from llm_trace.bench.sample import Sample
from llm_trace.bench.stats import Stats
from llm_trace.bench.target import Target
from llm_trace.core.clock import SYSTEM
from llm_trace.core.expected import SCHEMA

_NS: Final = 1e9


def document(results: Results, target: Target, checks: Sequence[Check]) -> dict[str, Any]:
    """Everything that the screen and the report show."""
    plan = results.plan
    return {
        "schema": SCHEMA,
        "version": __version__,
        "written": datetime.fromtimestamp(SYSTEM.wall_ns() / _NS, timezone.utc).isoformat(),
        "target": {"url": target.url, "api": target.api, "model": target.model},
        "plan": {
            "prompt_tokens": list(plan.lengths),
            "concurrency": list(plan.concurrencies),
            "requests": plan.requests,
            "max_tokens": plan.max_tokens,
            "timeout": plan.timeout,
            "objectives": dict(plan.objectives),
        },
        "complete": results.stopped is None,
        "stopped": results.stopped,
        "prompt_lengths": results.ruler,
        "first_request": {"server": results.start_state, **_sample(results.first)},
        "warm_up": [_sample(sample) for sample in results.warm_up],
        "cells": [_cell(cell) for cell in results.cells],
        "prefill": _prefill(results.prefill),
        "checks": [check._asdict() for check in checks],
    }


def _sample(sample: Sample | None) -> dict[str, Any]:
    if sample is None:
        return {}
    return {
        "outcome": sample.outcome,
        "reason": sample.reason,
        "ttft": sample.ttft,
        "prompt_tokens": sample.prompt_tokens,
    }


def _cell(result: CellResult) -> dict[str, Any]:
    return {
        "concurrency": result.cell.concurrency,
        "prompt_tokens": result.cell.length,
        "prefix": result.cell.prefix,
        "counted_prompt_tokens": result.tokens,
        "requests": {"ok": result.ok, "failed": result.failed, "cancelled": result.cancelled},
        "reasons": dict(result.reasons),
        "ttft": _stats(result.ttft),
        "server_ttft": _stats(result.server_ttft),
        "outside_server": _stats(result.outside),
        "tpot": _stats(result.tpot),
        "duration": _stats(result.duration),
        "per_second": result.rates._asdict(),
        "good": result.good,
        "reuse": result.reuse._asdict(),
        "phases": None if result.phases is None else result.phases._asdict(),
    }


def _prefill(fit: Fit | None) -> dict[str, Any] | None:
    return None if fit is None else {**fit._asdict(), "resistant": fit.resistant._asdict()}


def _stats(stats: Stats | None) -> dict[str, Any] | None:
    return None if stats is None else stats._asdict()
