"""What a run found, for people and for programs."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence

from tests.benchmarks.budgets import Results, Verdict
from tests.benchmarks.contenders import CONTENDERS
from tests.benchmarks.rounds import TOKENS

_METHOD = """\
Cost of the middleware: CPU time added to the bare app, {python}, {rounds} rounds.
One streamed chat answer (OpenAI chunks as vLLM writes them) of {tokens} tokens, driven
in process without sockets. All contenders take turns in one process, each sample beside one of the
bare app; medians of the differences, and a straight line through them: what it adds to a request,
and what to each token chunk. CPU time of all threads: export in the background is in it, to an
exporter that drops spans. "instrument() disabled" is the bare app again: what it shows is noise.
"""


def text(results: Results, verdicts: Sequence[Verdict], rounds: int) -> str:
    """The report as text."""
    method = _METHOD.format(
        python=f"Python {platform.python_version()}",
        rounds=rounds,
        tokens=", ".join(map(str, TOKENS)),
    )
    parts = (_costs(results), _steps(results), _budgets(verdicts))
    return "\n".join((method, *("\n".join((*part, "")) for part in parts if part)))


def as_json(results: Results, verdicts: Sequence[Verdict], rounds: int) -> str:
    """The report as JSON; times in us, memory in bytes."""
    document = {
        "python": platform.python_version(),
        "rounds": rounds,
        "tokens": TOKENS,
        "added": {
            key: {"request_us": line.fixed / 1e3, "chunk_us": line.each / 1e3}
            for key, line in results.added.items()
        },
        "memory_bytes": dict(results.memory),
        "step_us": {str(running): cost._asdict() for running, cost in results.steps.items()},
        "budgets": [
            {**verdict.budget._asdict(), "value": verdict.value, "kept": verdict.kept}
            for verdict in verdicts
        ],
    }
    return json.dumps(document, indent=2)


def _costs(results: Results) -> list[str]:
    span, page = (results.added[key].fixed for key in ("otel_one_span", "prometheus"))
    lines = [f"{'':42}{'us/request':>11}{'us/chunk':>10}{'x one span':>12}{'x instrumentator':>18}"]
    for key, line in results.added.items():
        name = CONTENDERS[key][0]
        cost = f"{line.fixed / 1e3:11.1f}{line.each / 1e3:10.3f}"
        lines.append(f"{name:42}{cost}{line.fixed / span:12.2f}{line.fixed / page:18.2f}")
    return lines


def _steps(results: Results) -> list[str]:
    if not results.steps:
        return []
    lines = [f"{'a step of vLLM that decodes, us':42}{'API process':>11}{'EngineCore':>12}"]
    for running, cost in results.steps.items():
        lines.append(f"{f'{running} running':42}{cost.api:11.1f}{cost.core:12.1f}")
    return lines


def _budgets(verdicts: Sequence[Verdict]) -> list[str]:
    lines = [f"{'budget':42}{'is':>11}{'must':>10}{'aim':>12}"]
    for verdict in verdicts:
        what, unit, must, aim, _ = verdict.budget
        word = "pass" if verdict.kept else "FAIL"
        lines.append(f"{what:42}{verdict.value:11.2f}{must:10.2f}{aim:12.2f}  {word}  {unit}")
    return lines
