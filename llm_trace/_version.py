"""The version of llm_trace, in one place."""

__version__ = "0.1.0"
