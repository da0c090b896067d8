"""aiohttp's client."""

from __future__ import annotations

from types import ModuleType

from llm_trace.upstream.patches import Patches


def patch(patches: Patches, module: ModuleType) -> None:
    """Watch the sessions of `module`."""
