"""The calls of one request that are too many to be kept: what they come to, and none of them apart.

A server may be asked for thousands of embeddings at once, each a call of its engine.
"""

from __future__ import annotations

from llm_trace.core.engine_call import EngineCall
from llm_trace.core.usage import Usage, total


class Surplus:
    """Whatever there is to say of them together."""

    __slots__ = ("last_token", "returned", "under_way", "usage")

    def __init__(self) -> None:
        self.under_way = 0
        """How many have not returned."""
        self.last_token = self.returned = 0
        """The latest of theirs, monotonic ns."""
        self.usage = Usage()

    def begin(self) -> None:
        """One was handed off."""
        self.under_way += 1

    def end(self, call: EngineCall) -> None:
        """One has returned."""
        self.under_way -= 1
        self.last_token = max(self.last_token, call.last_token)
        self.returned = max(self.returned, call.returned)
        self.usage = total([self.usage, call.usage_added()])
