"""What can be wrong with a probe on the user's side."""

from __future__ import annotations

from llm_trace.errors import LlmTraceError


class ProbeError(LlmTraceError):
    """The probe cannot run as asked, or nobody answers; the message says what to change."""
