"""The engines of this process that are joined, each once, and the stat loggers that feed them."""

from __future__ import annotations

import weakref
from typing import Any, Final

from llm_trace_vllm.join import Join

_MARK: Final = "_llm_trace_join"

joins: Final[weakref.WeakSet[Join]] = weakref.WeakSet()
"""The joins of this process, as long as their engines live."""

loggers: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
"""The stat loggers that vLLM made in this process, one or more an engine client."""


def join_engine(engine: Any) -> Join:
    """The join of `engine`, made at the first call."""
    found: Join | None = getattr(engine, _MARK, None)
    if found is None:
        found = Join(engine)
        joins.add(found)
        setattr(engine, _MARK, found)
        for logger in tuple(loggers):
            if logger.vllm_config is getattr(engine, "vllm_config", None):
                logger.serve(found)
    return found
