"""What the operator says, from the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Config:
    """Where everything is, and who may ask how often."""

    engine: str
    """Base URL of a server with OpenAI's routes."""
    model: str
    database: str
    keys: Mapping[str, str]
    """SHA-256 of a key, in hex, to the name of its owner."""
    editors: frozenset[str]
    """Who may put documents on the shelf."""
    per_minute: int

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> Config:
        """Read `ASSISTANT_*`; a missing engine is an error, as is a key without an owner."""
        pairs = environ.get("ASSISTANT_KEYS", "").split()
        return cls(
            engine=environ["ASSISTANT_ENGINE"],
            model=environ.get("ASSISTANT_MODEL", "default"),
            database=environ.get("ASSISTANT_DATABASE", "assistant.db"),
            keys=dict(pair.split("=", 1) for pair in pairs),
            editors=frozenset(environ.get("ASSISTANT_EDITORS", "").split()),
            per_minute=int(environ.get("ASSISTANT_PER_MINUTE", "60")),
        )
