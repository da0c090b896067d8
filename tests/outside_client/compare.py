"""What an outside client measured, request by request beside our spans of the same requests.

A client's time to first token is ours and the way there and back: opening a connection, writing the
request, the server's accepting and parsing it, and the first bytes' way to the client. Of that the
way there can be measured, as both sides have the host's wall clock; the way back is what is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from llm_trace import semconv as s

PERCENTILES: Final = (0.5, 0.9, 0.99)
RELATIVE: Final = 0.05
ABSOLUTE: Final = 2.0
"""Two numbers agree within 5 % or 2 ms, whichever is more."""


class Served(NamedTuple):
    """One request as our spans have it."""

    start: int
    """Arrival, wall ns."""
    ttft: float
    """Milliseconds to the first token sent."""
    per_token: float
    """Milliseconds from the first to the last token sent, by tokens after the first."""


class Pair(NamedTuple):
    """One request on both sides, in ms."""

    client_ttft: float
    client_per_token: float
    way_there: float
    """From the client's start of the request to its arrival in the app."""
    served: Served


class Row(NamedTuple):
    """One percentile of one quantity."""

    what: str
    percentile: float
    client: float
    ours: float
    explained: float
    """Ours with what the definitions differ by."""

    @property
    def agrees(self) -> bool:
        """Whether nothing is left unexplained."""
        return abs(self.client - self.explained) <= max(RELATIVE * self.client, ABSOLUTE)


class Held(NamedTuple):
    """One percentile of the client's, and the bucket in which our histogram has the same."""

    what: str
    percentile: float
    client: float
    low: float
    high: float

    @property
    def agrees(self) -> bool:
        """Whether the client's lies in that bucket, or as near to it as numbers that agree."""
        near = max(RELATIVE * self.client, ABSOLUTE)
        return self.low - near <= self.client <= self.high + near


def hold(what: str, values: Sequence[float], buckets: Mapping[float, float]) -> list[Held]:
    """Percentiles of the client's `values`, ms, in a histogram's cumulative counts by seconds."""
    found = []
    for p in PERCENTILES:
        low, high = bucket_of(buckets, p)
        found.append(Held(what, p, percentile(values, p), low * 1e3, high * 1e3))
    return found


def served(spans: Iterable[Any]) -> dict[str, Served]:
    """Our requests by the id of their answer: a root and its `decode` of each."""
    spans = list(spans)
    decodes = {x.parent_id: x.end - x.start for x in spans if x.name == s.DECODE}
    return {
        x.attributes[s.RESPONSE_ID]: Served(
            x.start,
            x.attributes[s.TTFT] * 1e3,
            decodes[x.span_id] / 1e6 / (x.attributes[s.USAGE_OUTPUT_TOKENS] - 1),
        )
        for x in spans
        if s.TTFT in x.attributes and x.span_id in decodes
    }


def pair(records: Iterable[Mapping[str, Any]], ours: Mapping[str, Served]) -> list[Pair]:
    """Each request of the client's measured phase, beside ours.

    Raises:
        LookupError: We have no trace of one of them.
    """
    pairs = []
    for record in records:
        about, metrics = record["metadata"], record["metrics"]
        if about["benchmark_phase"] != "profiling" or about["was_cancelled"]:
            continue
        mine = ours[f"chatcmpl-{about['x_request_id']}"]
        pairs.append(
            Pair(
                metrics["time_to_first_token"]["value"],
                metrics["inter_token_latency"]["value"],
                (mine.start - about["request_start_ns"]) / 1e6,
                mine,
            )
        )
    return pairs


def compare(pairs: Sequence[Pair]) -> list[Row]:
    """Percentiles of time to first token and of time per output token."""
    rows = []
    for p in PERCENTILES:
        client = percentile([x.client_ttft for x in pairs], p)
        ours = percentile([x.served.ttft for x in pairs], p)
        explained = percentile([x.served.ttft + x.way_there for x in pairs], p)
        rows.append(Row("time to first token", p, client, ours, explained))
    for p in PERCENTILES:
        client = percentile([x.client_per_token for x in pairs], p)
        ours = percentile([x.served.per_token for x in pairs], p)
        rows.append(Row("time per output token", p, client, ours, ours))
    return rows


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of them lie, interpolated as NumPy does by default."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def bucket_of(buckets: Mapping[float, float], share: float) -> tuple[float, float]:
    """The bounds between which a histogram has its percentile: cumulative counts by upper bound."""
    total = max(buckets.values())
    lower = 0.0
    for bound, count in sorted(buckets.items()):
        if count >= share * total:
            return lower, bound
        lower = bound
    raise LookupError("a histogram without samples has no percentiles")
