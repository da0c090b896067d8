"""How much of a fact is enough, where rules about several phases agree on it."""

from __future__ import annotations

from typing import Final

NEAR: Final = 3.0
"""Measured over floor up to which nothing but less work or more hardware helps: good kernels reach
a third to two thirds of the peaks."""

HALF: Final = 0.5
"""Part of a phase that a fact must explain to be its cause."""

LOST: Final = 0.2
"""Part of decode that it must have lost to one thing for that to be its cause."""
