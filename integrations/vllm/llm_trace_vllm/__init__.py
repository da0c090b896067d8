"""llm_trace inside vLLM: the engine's own moments, joined to the HTTP request that waited for them.

`vllm serve MODEL --middleware llm_trace.TraceMiddleware` needs nothing from here: vLLM loads the
stat logger by its entry point, and the first request installs the join. An app that embeds
`AsyncLLM` calls `trace(engine)` itself.
"""

from __future__ import annotations

from llm_trace_vllm.join import Join
from llm_trace_vllm.joined import join_engine
from llm_trace_vllm.scheduling import scheduler

__all__ = ["Join", "scheduler", "trace"]


def trace(engine: object) -> Join:
    """Join an embedded `AsyncLLM` to the requests of this process; idempotent.

    Args:
        engine: The engine client. What it offers decides the tier; nothing is ever raised for
            what it lacks.

    Returns:
        The join, whose `tier` says how much the engine tells.
    """
    return join_engine(engine)
