"""Turns the tracing of the app's own calls on and off, for the whole process.

Whether a call is traced is decided by the settings of the request that it is made in, so apps with
different settings may share a process.
"""

from __future__ import annotations

from llm_trace.upstream import aiohttp_client, httpx_clients
from llm_trace.upstream.late import WhenImported
from llm_trace.upstream.patches import Patches

_patches = Patches()
_waiting: list[WhenImported] = []


def switch_on() -> None:
    """Watch every client of this process, built before or after; again it does nothing."""
    if _waiting:
        return
    finder = WhenImported(
        {
            "httpx": lambda module: httpx_clients.patch(_patches, module),
            "httpx2": lambda module: httpx_clients.patch(_patches, module),
            "aiohttp": lambda module: aiohttp_client.patch(_patches, module),
        }
    )
    _patches.on = True
    _waiting.append(finder)
    finder.install()


def switch_off() -> None:
    """Leave the clients as they were."""
    while _waiting:
        _waiting.pop().remove()
    _patches.undo()
