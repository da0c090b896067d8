"""What an engine behind a wire says of its own time, placed on our line.

It comes as durations, since two hosts share no clock. The engine's time ends where its first token
(or, for an answer in one piece, its head) reached us; what lies before it on our line is the way
there and back, which nobody can split: it is called `network` and comes first. An engine that
reports only some of its phases leaves the rest of the stretch as it was, `engine`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from llm_trace import semconv as s
from llm_trace.core.ledger import Claim

_NAMED: Final = (s.MODEL_LOAD, s.QUEUE_WAIT, s.PREFILL, s.DECODE, s.FIRST_TOKEN)
"""The phases of the engine that keep their names on our line, in the order of their end; what else
it did, before it queued the request, is `engine` to us."""


class Inside(NamedTuple):
    """The engine's own account of the time up to its first token or answer."""

    phases: Mapping[str, int]
    """Ns by phase."""
    whole: bool = True
    """It covers all of the engine server's time, so the rest of ours is `network`."""

    @property
    def total(self) -> int:
        """All that is accounted for, ns."""
        return sum(self.phases.values())

    def fits(self, start: int, end: int) -> bool:
        """Whether it can be of the stretch between two stamps, monotonic ns."""
        return 0 < start <= end and self.total <= end - start

    def network(self, start: int, end: int) -> int:
        """What of our stretch the engine's server does not account for, ns."""
        return end - start - self.total if self.whole else 0


def place(inside: Inside, start: int, end: int, until: int) -> list[Claim]:
    """The engine's phases as claims on our line; none where they do not fit.

    Args:
        inside: What the engine said.
        start: When the request was sent, monotonic ns.
        end: When the first token, or the head of an answer in one piece, was here.
        until: When the rest of that answer was here.
    """
    if not inside.fits(start, end):
        return []
    return [claim for claim in _laid(inside, start, end, until) if claim.start < claim.end]


def _laid(inside: Inside, start: int, end: int, until: int) -> Iterator[Claim]:
    network = inside.phases.get(s.NETWORK, 0) + inside.network(start, end)
    yield Claim(s.NETWORK, start, start + network)
    if inside.whole:
        yield Claim(s.NETWORK, end, until)
    at = end
    for phase in reversed(_NAMED):
        length = inside.phases.get(phase, 0)
        yield Claim(phase, at - length, at)
        at -= length
