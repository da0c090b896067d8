"""What can be wrong with a run of the benchmark on the user's side."""

from __future__ import annotations

from llm_trace.errors import LlmTraceError


class BenchError(LlmTraceError):
    """The benchmark cannot run as asked; the message says what to change."""
