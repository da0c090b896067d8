"""Whether tokens arrive as they are sent, or in lumps that something between held together.

Tokens that arrive together make a lump. A server that makes one every 20 ms, of which eight arrive
at a time, is not the one who lumps them. Where the server tells its own pace it is known; where it
does not, its pace can only be taken from the arrivals, and tokens that all came at once may have
been made so.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, Literal, NamedTuple

Stream = Literal["streamed", "lumped", "suspect", "unknown"]

LEAST_TOKENS: Final = 8
"""Fewer show no pace."""
LEAST_PACE: Final = 1_000_000
"""Ns between tokens; a server that is faster may fill a packet with several."""
LUMPED: Final = 3.0
"""Tokens a lump, from which on something holds them together."""
SUSPECT_WAIT: Final = 20
"""All at once after a wait this many times as long as it took them to arrive: held, or a cache."""


class Pace(NamedTuple):
    """How the tokens of one answer came."""

    tokens: int
    """Events that carry one; an event may hold several tokens."""
    lumps: int
    spread: int
    """Ns from the first to the last."""
    stream: Stream

    @property
    def per_lump(self) -> float:
        """Mean tokens a lump."""
        return self.tokens / self.lumps if self.lumps else 0.0


def pace_of(arrived: Sequence[int], waited: int, server: int | None) -> Pace:
    """How tokens that `arrived` at these stamps came, and what that says.

    Args:
        arrived: A stamp for each, ns, in order.
        waited: From the request to the first, ns.
        server: From the first to the last as the server sent them, ns; None where it does not say.
    """
    tokens = len(arrived)
    spread = arrived[-1] - arrived[0] if tokens else 0
    each = (spread if server is None else server) / max(1, tokens - 1)
    together = max(LEAST_PACE, each / 4)
    lumps = 1 + sum(after - before > together for before, after in pairwise(arrived))
    pace = Pace(tokens, lumps if tokens else 0, spread, "unknown")
    return pace._replace(stream=_judge(pace, each, waited, is_known=server is not None))


def _judge(pace: Pace, each: float, waited: int, *, is_known: bool) -> Stream:
    if pace.tokens < LEAST_TOKENS:
        return "unknown"
    if each >= LEAST_PACE:
        return "lumped" if pace.per_lump >= LUMPED else "streamed"
    held = not is_known and waited > SUSPECT_WAIT * max(pace.spread, LEAST_PACE)
    return "suspect" if held else "unknown"
