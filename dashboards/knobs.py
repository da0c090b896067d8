"""What an operator may want to set: objectives, windows, thresholds and selectors, no logic.

Change a value here, run `python -m dashboards.build`, and boards, rules and alerts follow.
"""

from __future__ import annotations

from typing import Final, NamedTuple

# --- objectives -------------------------------------------------------------------------------

TTFT_SECONDS: Final = 1.0
"""A streamed request is good when its first token comes within this.

It must be a bound of both the TTFT buckets and the TTFT bands, so that the requests that miss the
objective are exactly those of the bands above it."""

TTFT_OBJECTIVE: Final = 0.99
"""Share of streamed requests, given up ones included, that must be good."""

TPOT_SECONDS: Final = 0.1
"""A request is good when its time per output token is at most this: ten tokens a second."""

TPOT_OBJECTIVE: Final = 0.99
"""Share of answered requests whose time per output token must be good."""

AVAILABILITY_OBJECTIVE: Final = 0.995
"""Share of requests that must not end in one of `BAD_OUTCOMES`."""

BAD_OUTCOMES: Final = ("error", "timeout", "truncated")
"""Outcomes that are our fault; `rejected` is an answer and `cancelled` is the client's choice."""


class Burn(NamedTuple):
    """One pair of windows: both must burn the budget `factor` times as fast as allowed."""

    severity: str
    short: str
    """Says that it still goes on."""
    long: str
    """Says that it is no blip."""
    factor: float


BURNS: Final = (
    Burn("critical", "5m", "1h", 14.4),  # 2 % of a month's budget in an hour
    Burn("warning", "30m", "6h", 6.0),  # 5 % of a month's budget in six hours
)

ENOUGH: Final = 10
"""Fewer requests than this in an alert's window wake nobody, whatever their share or quantile."""

# --- thresholds of the other alerts -----------------------------------------------------------

WINDOW: Final = "10m"
"""Over what the alerts below look, long enough for a handful of requests."""

QUEUE_PER_RUNNING: Final = 0.5
"""Waiting requests per running one from which on the engine counts as saturated."""

PREEMPTIONS_PER_MINUTE: Final = 0.5
"""Preemptions per running request and minute that make a storm."""

COLD_SHARE: Final = 0.05
"""Share of first tokens that paid for a cold start."""

COLD_REQUESTS: Final = 3
"""Fewer cold starts than this in the window are no wave."""

CACHE_WINDOW: Final = "30m"
"""The cache share now..."""

CACHE_BASELINE: Final = "6h"
"""...is compared with the one over this."""

CACHE_COLLAPSE: Final = 0.5
"""The share now, as a part of the baseline's, below which the cache has collapsed."""

CACHE_MINIMUM: Final = 0.1
"""A baseline below this is no cache worth an alert."""

SLOW_QUANTILE: Final = 0.95
"""Retrieval and delivery are judged by this quantile."""

RETRIEVAL_SECONDS: Final = 0.5
"""Retrieval above this is slow: half of the TTFT objective."""

DELIVERY_SECONDS: Final = 0.25
"""From the engine's first token to the client's, above this, is slow."""

LOOP_BLOCKED_SHARE: Final = 0.1
"""Share of the time for which an event loop is blocked, from which on it holds everybody up."""

UNSPLIT_SHARE: Final = 0.5
"""Share of TTFT without a split from which on the join with the engine counts as silent."""

THROTTLED_SHARE: Final = 0.2
"""Share of the time held back by heat or power from which on a GPU counts as throttled..."""

THROTTLED_CLOCK: Final = 0.9
"""...when its clock is also below this part of its best in the baseline: boosting up to the power
limit counts as held back and costs nothing."""

THROTTLED_BASELINE: Final = "6h"
"""Over what a GPU's best clock is looked for."""

HOLD: Final = "5m"
"""For how long a threshold must be passed before the alert fires."""

# --- where things are -------------------------------------------------------------------------

RUNBOOK_URL: Final = "https://github.com/llm-trace/llm-trace/blob/main/dashboards/runbooks/{}.md"
"""Where the runbooks can be read; `{}` is the alert's name."""

TAG: Final = "llm_trace"
"""The tag by which our boards link to each other."""

QUANTILES: Final = (0.5, 0.95, 0.99)
"""The quantiles that boards show of a latency."""

REFRESH: Final = "30s"
"""How often an open board asks again."""

SINCE: Final = "now-1h"
"""From when on a board shows at first."""
