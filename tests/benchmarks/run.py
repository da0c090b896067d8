"""The whole benchmark: builds the contenders, measures, judges and writes the report."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from llm_trace.core import faults
from tests.benchmarks import drive, report, rounds, steps
from tests.benchmarks.budgets import Results, judge
from tests.benchmarks.contenders import CONTENDERS, Contender

SECONDS: Final = 60.0
_IN_FLIGHT: Final = 500


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the exit status is 1 when a must is missed."""
    options = _options().parse_args(arguments)
    results, done = asyncio.run(measure(options.seconds))
    if faults.internal:  # they were contained and logged; telemetry that fails is cheap
        raise SystemExit(f"no result: faults of llm_trace while measuring: {dict(faults.internal)}")
    verdicts = judge(results)
    write = report.as_json if options.json else report.text
    sys.stdout.write(write(results, verdicts, done) + "\n")
    return 0 if all(verdict.kept for verdict in verdicts) else 1


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--json", action="store_true", help="write the results as JSON")
    parser.add_argument(
        *("--seconds", "-s"), type=float, default=SECONDS, help="time to measure (default: 60)"
    )
    return parser


async def measure(seconds: float) -> tuple[Results, int]:
    """The results of about `seconds` of measuring, and how many rounds that were."""
    contenders = {key: build() for key, (_, build) in CONTENDERS.items()}
    try:
        samples, done = await rounds.measure(contenders, seconds)
        memory = await _memory(contenders)
    finally:
        for contender in contenders.values():
            contender.close()
    added = {key: rounds.added(samples, key) for key in contenders if key != "bare"}
    return Results(added, memory, steps.measure()), done


async def _memory(contenders: Mapping[str, Contender]) -> dict[str, float]:
    used = {
        key: await drive.bytes_in_flight(contenders[key].app, _IN_FLIGHT)
        for key in ("bare", "otel_one_span", "metrics_only", "full")
    }
    return {key: size - used["bare"] for key, size in used.items() if key != "bare"}
