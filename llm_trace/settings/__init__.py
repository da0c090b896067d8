"""Every setting of llm_trace: one frozen object, read once, checked at start.

What OpenTelemetry already has a variable for (endpoints, protocols, headers, sampling, resource,
content capture) is set by `OTEL_*` and is not repeated here.

`table` holds the settings, a `row` each; `kinds` says what values there are, `environment` reads
the variables, `refusals` words what is wrong with them.
"""

from __future__ import annotations

from llm_trace.settings.defaults import QUIET_PATHS, RETRIEVAL_STORES
from llm_trace.settings.environment import CAPTURE, FOREIGN, PREFIX
from llm_trace.settings.row import HIDDEN
from llm_trace.settings.table import SECRETS, Settings

__all__ = [
    "CAPTURE",
    "FOREIGN",
    "HIDDEN",
    "PREFIX",
    "QUIET_PATHS",
    "RETRIEVAL_STORES",
    "SECRETS",
    "Settings",
]
