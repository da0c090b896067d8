"""Waits outside this server: before it, and on the way to an engine."""

from __future__ import annotations

from typing import Final

from llm_trace.diagnosis.rules.rule import Rule, always
from llm_trace.diagnosis.rules.wording import ms, took

EDGE: Final = Rule(
    "edge",
    lambda c: (c.record.edge or 0) > c.waited,
    lambda c: (
        f"it took {ms(c.record.edge or 0)} from the edge to this server, and {ms(c.waited)} here"
    ),
    "Look at what stands before the server: the load balancer's queue, the proxy, the server's "
    "backlog. Both clocks must agree.",
    sure=False,
)
NETWORK: Final = Rule(
    "network",
    always,
    took("the way to the engine and back"),
    "Look at the connections to the engine: pools, TLS, proxies, distance.",
)
