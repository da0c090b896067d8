"""The law of llm_trace: every nanosecond of a request belongs to exactly one phase.

Theory
------
A request is a line from `received` to `finished`. *Moments* are points on it, stamped by three
witnesses: the ASGI server's messages, the app, and the engine. A *phase* is the stretch between
two neighbouring moments. What a phase is called depends on the two moments that bound it and on
nothing else, so the whole theory is the small tables below:

* `PHASE_BETWEEN` names the stretch between two moments that are direct neighbours;
* `FOLDED` names a stretch in which a moment is missing: nobody can say how it splits, so it goes to
  `engine` (the engine was busy) or `unattributed` (no evidence at all);
* `OPEN` names the stretch that an early end (cancel, error, rejection) cut off: the phase that the
  request was in is closed at the end, and nothing after it exists.

Moments may be missing, repeated or nonsense. `keep_moments` walks them from the most trusted
witness to the least and keeps each one only where it agrees with those kept before it; the rest
are dropped and counted. Since the survivors are in order, the stretches between them tile the line
by construction: no overlap, no gap, no negative length, and an exact integer sum.

Apps also name *intervals* (retrieval, model load, earlier generations, their own phases). These
lie over the stretches and may overlap each other; `CLAIMS` says which stretches an interval may
take time from, and each nanosecond goes to one claimant: the more specific kind wins, then the
latest started.

What must change together: a new moment needs a place in `STREAMED` and `PLAIN`, a rank in `TRUST`,
and rows in the three tables; the property tests hold for any table.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from llm_trace import semconv as s

RECEIVED: Final = "received"
ADMITTED: Final = "admitted"
HANDED_OFF: Final = "handed_off"
QUEUED: Final = "queued"
SCHEDULED: Final = "scheduled"
FIRST_TOKEN_ENGINE: Final = "first_token_engine"
LAST_TOKEN_ENGINE: Final = "last_token_engine"
RETURNED: Final = "returned"
"""The engine call ended: the only late stamp of an engine that reports none of its own."""
FIRST_TOKEN_SENT: Final = "first_token_sent"
LAST_TOKEN_SENT: Final = "last_token_sent"
FINISHED: Final = "finished"

_TO_FIRST_TOKEN: Final = (RECEIVED, ADMITTED, HANDED_OFF, QUEUED, SCHEDULED, FIRST_TOKEN_ENGINE)

STREAMED: Final = (*_TO_FIRST_TOKEN, FIRST_TOKEN_SENT, LAST_TOKEN_SENT, FINISHED)
"""Legal order of the moments of an answer whose tokens the client sees one by one."""

PLAIN: Final = (*_TO_FIRST_TOKEN, LAST_TOKEN_ENGINE, RETURNED, FINISHED)
"""Legal order for an answer in one piece: no token is visible before the whole."""

TRUST: Final = (
    RECEIVED,
    FINISHED,
    FIRST_TOKEN_SENT,
    LAST_TOKEN_SENT,
    HANDED_OFF,
    ADMITTED,
    FIRST_TOKEN_ENGINE,
    SCHEDULED,
    QUEUED,
    RETURNED,
    LAST_TOKEN_ENGINE,
)
"""Witnesses from the most to the least trusted: what we saw ourselves, the app, the engine."""

PHASE_BETWEEN: Final[Mapping[tuple[str, str], str]] = {
    (RECEIVED, ADMITTED): s.ADMISSION,
    (ADMITTED, HANDED_OFF): s.PREPARE,
    (HANDED_OFF, QUEUED): s.QUEUE_WAIT,
    (HANDED_OFF, SCHEDULED): s.QUEUE_WAIT,
    (QUEUED, SCHEDULED): s.QUEUE_WAIT,
    (SCHEDULED, FIRST_TOKEN_ENGINE): s.PREFILL,
    (FIRST_TOKEN_ENGINE, FIRST_TOKEN_SENT): s.FIRST_TOKEN,
    (FIRST_TOKEN_SENT, LAST_TOKEN_SENT): s.DECODE,
    (LAST_TOKEN_SENT, FINISHED): s.FINISH,
    (FIRST_TOKEN_ENGINE, LAST_TOKEN_ENGINE): s.DECODE,
    (FIRST_TOKEN_ENGINE, RETURNED): s.DECODE,
    (LAST_TOKEN_ENGINE, RETURNED): s.FINISH,
    (LAST_TOKEN_ENGINE, FINISHED): s.FINISH,
    (RETURNED, FINISHED): s.FINISH,
}

FOLDED: Final[Mapping[str, str]] = {
    RECEIVED: s.UNATTRIBUTED,
    ADMITTED: s.UNATTRIBUTED,
    HANDED_OFF: s.ENGINE,
    QUEUED: s.ENGINE,
    SCHEDULED: s.ENGINE,
    FIRST_TOKEN_ENGINE: s.UNATTRIBUTED,
    FIRST_TOKEN_SENT: s.DECODE,
}

OPEN: Final[Mapping[str, str]] = {
    RECEIVED: s.ADMISSION,
    ADMITTED: s.UNATTRIBUTED,
    HANDED_OFF: s.ENGINE,
    QUEUED: s.QUEUE_WAIT,
    SCHEDULED: s.PREFILL,
    FIRST_TOKEN_ENGINE: s.FIRST_TOKEN,
    FIRST_TOKEN_SENT: s.DECODE,
    LAST_TOKEN_SENT: s.DECODE,
    LAST_TOKEN_ENGINE: s.FINISH,
    RETURNED: s.FINISH,
}

OPEN_PLAIN: Final[Mapping[str, str]] = {**OPEN, FIRST_TOKEN_ENGINE: s.DECODE}
"""The same where no token is visible before the whole: delivery of the first is no phase."""

_BEFORE_ENGINE: Final = frozenset({s.ADMISSION, s.PREPARE, s.UNATTRIBUTED})
_UNTIL_TOKEN: Final = _BEFORE_ENGINE | {s.QUEUE_WAIT, s.PREFILL, s.ENGINE}

_OF_THE_ENGINE: Final = (s.NETWORK, s.QUEUE_WAIT, s.PREFILL, s.DECODE, s.FIRST_TOKEN)
"""What an engine behind a wire may say of a stretch that is all `engine` to us; see `inside`."""

CLAIMS: Final[Mapping[str, tuple[int, frozenset[str]]]] = {
    s.MODEL_LOAD: (3, _UNTIL_TOKEN),
    s.GENERATION: (2, _BEFORE_ENGINE),
    s.RETRIEVAL: (1, _BEFORE_ENGINE),
    **dict.fromkeys(_OF_THE_ENGINE, (4, frozenset({s.ENGINE}))),
}
"""By interval phase: how specific it is, and the phases that it may take time from."""

_NAMED_BY_APP: Final = (0, _BEFORE_ENGINE)

MAX_CLAIMS: Final = 64
"""Intervals of one request that the ledger weighs; the bound keeps its work and memory bounded."""


class Claim(NamedTuple):
    """An interval that asks for its time: a phase name and two monotonic stamps, ns."""

    phase: str
    start: int
    end: int


class Segment(NamedTuple):
    """A stretch of the request that belongs to one phase: monotonic stamps, ns."""

    phase: str
    start: int
    end: int


class Ledger(NamedTuple):
    """The tiling of one request."""

    segments: tuple[Segment, ...]
    """In order, none empty, each beginning where the one before ended."""
    moments: Mapping[str, int]
    """The moments that agreed, by name."""
    dropped: int
    """How many stamps were given and contradicted the others."""


def stamp(value: object) -> int:
    """`value` as a stamp in ns, or 0: None, NaN, infinities, zero and negatives are missing."""
    if type(value) is int:
        return max(0, value)
    if isinstance(value, float) and math.isfinite(value) and value >= 1:
        return int(value)
    return 0


def keep_moments(order: Sequence[str], given: Mapping[str, object]) -> tuple[dict[str, int], int]:
    """The moments of `given` that agree, in `order`, and how many were dropped.

    `received` is taken as it is and `finished` is never before it.
    """
    stamps: dict[str, int] = {}
    latest = 0
    in_order = True
    for moment in order:
        at = given.get(moment)
        if at and (at := stamp(at)):
            stamps[moment] = at
            in_order = in_order and at >= latest
            latest = at
    if in_order and RECEIVED in stamps and FINISHED in stamps:
        return stamps, 0
    return _repair(order, stamps)


def _repair(order: Sequence[str], stamps: Mapping[str, int]) -> tuple[dict[str, int], int]:
    received = stamps.get(RECEIVED, 0)
    kept = {RECEIVED: received, FINISHED: max(received, stamps.get(FINISHED, 0))}
    dropped = int(0 < stamps.get(FINISHED, 0) < received)
    for moment in TRUST[2:]:
        at = stamps.get(moment)
        if at is None:
            continue
        if _agrees(order, kept, moment, at):
            kept[moment] = at
        else:
            dropped += 1
    return {moment: kept[moment] for moment in order if moment in kept}, dropped


def _agrees(order: Sequence[str], kept: Mapping[str, int], moment: str, at: int) -> bool:
    place = order.index(moment)
    return all(kept.get(earlier, at) <= at for earlier in order[:place]) and all(
        at <= kept.get(later, at) for later in order[place + 1 :]
    )


def name_stretches(kept: Mapping[str, int], *, cut: Mapping[str, str] | None) -> list[Segment]:
    """The phases between the `kept` moments, in order, empty ones left out.

    `cut` names the last stretch of a request that ended early: `OPEN` or `OPEN_PLAIN`.
    """
    stretches: list[Segment] = []
    left, start = RECEIVED, kept[RECEIVED]
    open_phase, begun = "", start
    for right, end in kept.items():
        if start < end:
            if cut and right == FINISHED:
                phase = cut[left]
            else:
                phase = PHASE_BETWEEN.get((left, right)) or FOLDED[left]
            if phase != open_phase:  # neighbours of one phase are one stretch
                if open_phase:
                    stretches.append(Segment(open_phase, begun, start))
                open_phase, begun = phase, start
        left, start = right, end
    if open_phase:
        stretches.append(Segment(open_phase, begun, start))
    return stretches


def _append(segments: list[Segment], phase: str, start: int, end: int) -> None:
    """Add a segment, growing the last one when it is of the same phase."""
    if segments and segments[-1].phase == phase:
        segments[-1] = Segment(phase, segments[-1].start, end)
    else:
        segments.append(Segment(phase, start, end))


def lay_claims(stretches: Sequence[Segment], claims: Iterable[Claim]) -> list[Segment]:
    """`stretches` with the time that the app's intervals may take given to them.

    Each nanosecond goes to one claimant: the most specific, then the latest started, then the
    one given last.
    """
    bounded = list(claims)[:MAX_CLAIMS]
    first, last = bounded[0][1:]
    if len(bounded) > 1:
        first = min([claim.start for claim in bounded])
        last = max([claim.end for claim in bounded])
    segments: list[Segment] = []
    for stretch in stretches:
        phase, start, end = stretch
        rivals = []
        if first < end and start < last:  # most stretches lie beside all claims
            rivals = [claim for claim in bounded if _may_take(claim, stretch)]
        if rivals:
            _divide(segments, stretch, rivals)
        elif segments and segments[-1].phase == phase:
            _append(segments, *stretch)
        else:
            segments.append(stretch)
    return segments


def _divide(segments: list[Segment], stretch: Segment, rivals: Sequence[Claim]) -> None:
    """Give each slice of `stretch`, between the ends of its rivals, to one of them or to none."""
    phase, first, last = stretch
    if len(rivals) == 1:  # nearly always
        claimant, start, end = rivals[0]
        start, end = max(first, start), min(last, end)
        for piece in ((phase, first, start), (claimant, start, end), (phase, end, last)):
            if piece[1] < piece[2]:
                _append(segments, *piece)
        return
    edges = {first, last}
    for _, start, end in rivals:
        edges.add(max(first, start))
        edges.add(min(last, end))
    for start, end in pairwise(sorted(edges)):
        _append(segments, _winner(rivals, start, end) or phase, start, end)


def _may_take(claim: Claim, stretch: Segment) -> bool:
    if claim.start >= stretch.end or claim.end <= stretch.start:
        return False
    return stretch.phase in CLAIMS.get(claim.phase, _NAMED_BY_APP)[1]


def _winner(rivals: Sequence[Claim], start: int, end: int) -> str | None:
    covering = [claim for claim in rivals if claim.start <= start and end <= claim.end]
    if len(covering) <= 1:
        return covering[0].phase if covering else None
    ranked = [
        (CLAIMS.get(claim.phase, _NAMED_BY_APP)[0], claim.start, place, claim.phase)
        for place, claim in enumerate(covering)
    ]
    return max(ranked)[3]


def tile(
    given: Mapping[str, object],
    claims: Iterable[Claim] = (),
    *,
    streamed: bool,
    ended_early: bool,
) -> Ledger:
    """Tile a request from its moments and intervals; nothing that is given can make it raise.

    Args:
        given: Stamps by moment name, monotonic ns; any value, nonsense counts as missing.
        claims: The app's intervals.
        streamed: Whether the client sees tokens one by one. A whole stream in which it saw none
            (the model said nothing, or nothing that shows) is laid out as a plain answer is.
        ended_early: Whether the request was cut off rather than completed.
    """
    visible = streamed and (ended_early or stamp(given.get(FIRST_TOKEN_SENT)) > 0)
    kept, dropped = keep_moments(STREAMED if visible else PLAIN, given)
    cut = (OPEN if visible else OPEN_PLAIN) if ended_early else None
    segments = name_stretches(kept, cut=cut)
    weighed = list(claims)
    if weighed:
        segments = lay_claims(segments, weighed)
    return Ledger(tuple(segments), kept, dropped)
