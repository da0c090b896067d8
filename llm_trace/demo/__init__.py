"""The product at work on one machine: a RAG app, an engine, load, and where each wait came from.

Owns the programs that it starts and the report that it prints; knows of the rest of llm_trace
only the public API and the names in `semconv`.
"""
