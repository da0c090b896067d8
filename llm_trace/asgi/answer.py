"""What an answer in one JSON document says of itself: id, model, usage, finish reasons, error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llm_trace.asgi.sse.dialect import read_object
from llm_trace.asgi.sse.facts import StreamFacts
from llm_trace.asgi.sse.reading import Reading


def facts_of(document: Mapping[str, Any]) -> StreamFacts:
    """The facts of a whole answer; the dialects are those of streams."""
    reading = Reading(StreamFacts())
    read_object(dict(document), "", reading)
    reading.facts.identify(dict(document))
    reading.finish(document.get("stop_reason"))  # Anthropic messages, outside of streams
    return reading.facts
