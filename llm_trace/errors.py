"""The exceptions of llm_trace: each message says what was wrong, which value, and what to do."""

from __future__ import annotations


class LlmTraceError(Exception):
    """Base of every error that llm_trace raises on purpose."""


class SettingsError(LlmTraceError, ValueError):
    """A setting or environment variable cannot be used; raised at start, never on a request."""


class MissingExtraError(LlmTraceError, ImportError):
    """An optional dependency is absent; the message names the exact `pip install`."""
