"""The token detector: sans-I/O, fed with body bytes, tells generated content from the rest.

`detector` is the door. Behind it `framing` cuts bytes into events, `shape` recognises the usual
event without decoding it, `memory` what earlier streams said alike, `dialect` reads the others, and
`facts` keeps what a stream said.
"""

from __future__ import annotations

from llm_trace.asgi.sse.detector import TokenDetector
from llm_trace.asgi.sse.facts import Seen, StreamFacts, is_unfinished
from llm_trace.asgi.sse.framing import framing_of
from llm_trace.asgi.sse.memory import Memory
from llm_trace.asgi.sse.shape import is_escaped

__all__ = [
    "Memory",
    "Seen",
    "StreamFacts",
    "TokenDetector",
    "framing_of",
    "is_escaped",
    "is_unfinished",
]
