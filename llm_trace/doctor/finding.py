"""What one check found, and what to do about it."""

from __future__ import annotations

from typing import Literal, NamedTuple

Level = Literal["ok", "note", "warning", "fault"]


class Finding(NamedTuple):
    """One line of the report."""

    check: str
    level: Level
    said: str
    fix: str = ""
    """What to do; empty where nothing is wrong."""
