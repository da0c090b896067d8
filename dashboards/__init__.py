"""Boards, alerts and recording rules as code; `python -m dashboards.build` writes `generated/`.

Imports names from `llm_trace.semconv` and nothing else of llm_trace; nothing there imports this.
"""
