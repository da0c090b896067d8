"""Loopback ports: free ones, and a plain word about one that is taken."""

from __future__ import annotations

import socket
from typing import Final

from llm_trace.demo.errors import DemoError

LOOPBACK: Final = "127.0.0.1"


def choose(asked: int, option: str) -> int:
    """Return the port asked for, checked, or a free one for 0."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, asked))
        except (OSError, OverflowError) as fault:
            raise DemoError(
                f"Port {asked} on {LOOPBACK} cannot be used ({fault}): give another with "
                f"{option}, or leave it out for a free one."
            ) from fault
        return int(probe.getsockname()[1])
