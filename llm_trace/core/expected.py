"""What a request's time to first token should be, by a benchmark of the same server.

`llm-trace bench --json` measures medians by prompt length, for new prefixes and for cached ones. A
request lies between them by its length and by the share of its prompt that was cached. Outside what
was measured nothing is expected: no line is drawn beyond its points.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from llm_trace.core.record import RequestRecord

SCHEMA: Final = "llm-trace.bench/1"

_MOST_BYTES: Final = 1 << 24


class Curve(NamedTuple):
    """A value by prompt tokens: straight lines between measured points."""

    tokens: tuple[float, ...]
    values: tuple[float, ...]

    def at(self, tokens: float) -> float | None:
        """The value at `tokens`; None outside what was measured."""
        if not self.tokens or not self.tokens[0] <= tokens <= self.tokens[-1]:
            return None
        right = bisect_left(self.tokens, tokens)
        if self.tokens[right] == tokens:
            return self.values[right]
        (x0, x1), (y0, y1) = self.tokens[right - 1 : right + 1], self.values[right - 1 : right + 1]
        return y0 + (y1 - y0) * (tokens - x0) / (x1 - x0)


class Expected(NamedTuple):
    """The expectation that one benchmark makes for one model; seconds."""

    model: str
    new: Curve
    """TTFT of prompts of which nothing was cached."""
    cached: Curve
    """TTFT of prompts that were cached; may be empty."""
    share: Curve
    """The share of these prompts that came from the cache."""

    def of(self, record: RequestRecord) -> float | None:
        """Seconds to the first token that `record` should have taken.

        None where the model is another, the engine did not say what it had cached, the start was
        cold, or the length was not measured.
        """
        usage = record.usage if record.visible is None else record.visible.usage
        tokens, cached = usage.input_tokens, usage.cached_tokens
        if record.model != self.model or record.start_state in _NOT_EXPECTED:
            return None
        if not tokens or cached is None:
            return None
        return self.at(tokens, min(1.0, cached / tokens))

    def at(self, tokens: float, cached_share: float) -> float | None:
        """Seconds for a prompt of so many tokens, of which a share is cached."""
        new = self.new.at(tokens)
        if new is None or not cached_share:
            return new
        cached, share = self.cached.at(tokens), self.share.at(tokens)
        if cached is None or not share:
            return None
        return new + (cached - new) * min(1.0, cached_share / share)


_NOT_EXPECTED: Final = frozenset({"cold", "unknown"})


def read(path: str) -> Expected:
    """The expectation of a benchmark's JSON document.

    Raises:
        ValueError: It cannot be read, is no such document, or measured nothing to expect.
    """
    try:
        with Path(path).open("rb") as file:
            document = json.loads(file.read(_MOST_BYTES))
    except OSError as fault:
        raise ValueError(f"it cannot be read: {fault.strerror or fault}") from None
    except (ValueError, RecursionError):
        raise ValueError("it is no JSON: write it with `llm-trace bench URL --json`") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ValueError(f"it has not the schema {SCHEMA}: write it with `llm-trace bench --json`")
    return expect(document)


def expect(document: Mapping[str, Any]) -> Expected:
    """The expectation of a document that has the schema.

    Raises:
        ValueError: It names no model, or holds no cell of a new prefix that was answered.
    """
    model = _dict(document.get("target")).get("model")
    cells = _calmest(document.get("cells"))
    new = [cell for cell in cells if _is(cell, "new", ("confirmed", "unconfirmed"))]
    cached = [cell for cell in cells if _is(cell, "cached", ("confirmed",))]
    by = _measured_by(cells)
    made = _curve((_length(cell), _number(cell, by, "median")) for cell in new)
    if not isinstance(model, str) or not made.tokens:
        raise ValueError("it measured no prompt with a new prefix: run the benchmark again")
    return Expected(
        model,
        made,
        _curve((_length(cell), _number(cell, by, "median")) for cell in cached),
        _curve((_length(cell), _number(cell, "reuse", "share")) for cell in cached),
    )


def _calmest(cells: object) -> list[Mapping[str, Any]]:
    """The cells with the fewest requests in flight: an engine that is busy with nobody else."""
    known = [_dict(cell) for cell in cells] if isinstance(cells, list) else []
    at_once = [_finite(cell.get("concurrency")) for cell in known]
    fewest = min((number for number in at_once if number is not None), default=None)
    return [cell for cell, number in zip(known, at_once, strict=True) if number == fewest]


def _measured_by(cells: Sequence[Mapping[str, Any]]) -> str:
    """The server's own clock where every cell has it, as requests are measured by it, too."""
    whole = all(cell.get("server_ttft") for cell in cells)
    return "server_ttft" if whole else "ttft"


def _is(cell: Mapping[str, Any], prefix: str, verdicts: Sequence[str]) -> bool:
    verdict = _dict(cell.get("reuse")).get("verdict")
    return cell.get("prefix") == prefix and verdict in verdicts


def _curve(points: Iterable[tuple[float | None, float | None]]) -> Curve:
    known = {x: y for x, y in points if x is not None and y is not None}
    ordered = sorted(known)
    return Curve(tuple(ordered), tuple(known[x] for x in ordered))


def _length(cell: Mapping[str, Any]) -> float | None:
    counted = _finite(cell.get("counted_prompt_tokens"))
    return _finite(cell.get("prompt_tokens")) if counted is None else counted


def _number(cell: Mapping[str, Any], part: str, name: str) -> float | None:
    return _finite(_dict(cell.get(part)).get(name))


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value > 0 else None


def _dict(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
