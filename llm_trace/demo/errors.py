"""What can be wrong with a demo before it runs: one sentence each, and what to do."""

from __future__ import annotations

from llm_trace.errors import LlmTraceError


class DemoError(LlmTraceError):
    """The demo cannot start, or one of its programs died."""
