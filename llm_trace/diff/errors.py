"""What can be wrong with a comparison on the user's side."""

from __future__ import annotations

from llm_trace.errors import LlmTraceError


class DiffError(LlmTraceError):
    """The two sides cannot be compared; the message says what to change."""
