"""Which fact makes which verdict: a decision list for each phase, first rule that holds.

The dominant phase says where the time went; its rules say why. `table` holds which rules are asked
of which phase, and in what order. The rules stand with what they blame: `app`, `network`,
`event_loop`, `engine`, `queue`, `prefill`, `delivery`, `decode`. `rule` is what they all are,
`limits` says how much of a fact is enough, `wording` how numbers are told.
"""

from __future__ import annotations

from llm_trace.diagnosis.rules.limits import LOST, NEAR
from llm_trace.diagnosis.rules.rule import Rule
from llm_trace.diagnosis.rules.table import APP_PHASE, EDGE, RULES

__all__ = ["APP_PHASE", "EDGE", "LOST", "NEAR", "RULES", "Rule"]
