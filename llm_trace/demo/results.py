"""All that a run found, and its machine-readable form."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from llm_trace import semconv
from llm_trace._version import __version__
from llm_trace.demo.advice import advise
from llm_trace.demo.engine import MODEL, SLOTS, Engine
from llm_trace.demo.summary import Summary, summarise
from llm_trace.demo.waterfall import rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from llm_trace.demo.client import Answer
    from llm_trace.demo.joined import Joined, Line
    from llm_trace.demo.load import Plan


@dataclass(frozen=True, slots=True)
class Results:
    """One run."""

    engine: Engine
    plan: Plan
    answers: Sequence[Answer]
    joined: Sequence[Joined]
    metrics: dict[str, list[str]]
    """A few lines of each service's /metrics page, by address."""
    dropped: int
    """Bodies and spans that the receiver refused."""

    @property
    def failures(self) -> list[Answer]:
        """Requests that were not answered in full."""
        return [answer for answer in self.answers if not answer.ok]

    @property
    def untraced(self) -> int:
        """Good requests whose app ledger did not arrive."""
        return len(self.answers) - len(self.failures) - len(self.joined)

    @property
    def unsplit(self) -> int:
        """Traced requests without the engine's own ledger."""
        return sum(not one.engine for one in self.joined)

    @property
    def good(self) -> bool:
        """Whether every request was answered, traced and split."""
        return not self.failures and not self.untraced and not self.unsplit

    @property
    def summaries(self) -> list[Summary]:
        """A summary for each class."""
        return summarise(self.joined)

    @property
    def slowest(self) -> Joined | None:
        """The request that waited longest for its first token."""
        return max(self.joined, key=lambda one: one.answer.ttft or 0.0, default=None)


def document(results: Results) -> dict[str, Any]:
    """Return the results as plain data; all times in seconds."""
    engine = results.engine
    slowest = results.slowest
    return {
        "llm_trace": __version__,
        "engine": {
            "simulated": engine.simulated,
            "title": engine.title,
            "version": engine.version,
            "model": MODEL,
            "slots": SLOTS,
        },
        "plan": asdict(results.plan),
        "ok": results.good,
        "requests": [_request(one) for one in results.joined],
        "failures": [asdict(answer) for answer in results.failures],
        "untraced": results.untraced,
        "unsplit": results.unsplit,
        "receiver_dropped": results.dropped,
        "classes": [_summary(one) for one in results.summaries],
        "slowest": [asdict(row) for row in rows(slowest)] if slowest else [],
        "next": advise(results.summaries),
        "metrics": results.metrics,
    }


def _request(one: Joined) -> dict[str, Any]:
    return {
        **asdict(one.answer),
        "parts": _named(one.parts),
        "sum": one.total,
        "difference": one.difference,
        "app": _own(one.app),
        "engine": _own(one.engine),
        "services": sorted({span.service for span in one.spans}),
        "spans": len(one.spans),
    }


def _own(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the ledger, the usage and the latency keys; the rest is HTTP."""
    kept = (semconv.SCOPE + ".", "gen_ai.usage.", "gen_ai.latency.")
    return {key: value for key, value in attributes.items() if key.startswith(kept)}


def _summary(one: Summary) -> dict[str, Any]:
    return {
        **asdict(one),
        "part_medians": _named(one.part_medians),
        "part_means": _named(one.part_means),
        "dominant": ".".join(one.dominant),
    }


def _named(parts: dict[Line, float]) -> dict[str, float]:
    return {".".join(line): seconds for line, seconds in parts.items()}
