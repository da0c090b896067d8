"""Which spans of other instrumentations are retrievals, and what they say of it.

Three dialects: the GenAI conventions, OpenInference, and the spans of database clients. A store
that holds vectors and little else is known by its name and a reading operation. A general one
serves sessions and logins too, so it must show what it was asked for: a vector or full-text search.
Of documents nothing but their number is kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from llm_trace import semconv as s
from llm_trace.core.usage import count

_DECLARED: Final[tuple[tuple[str, str], ...]] = (
    (s.OPERATION_NAME, s.RETRIEVAL),
    ("openinference.span.kind", "retriever"),
    ("langfuse.observation.type", "retriever"),
)
"""Attributes whose value says it, in lower case."""

_SYSTEM: Final = ("db.system.name", "db.system")
_TELLING: Final = frozenset({*dict(_DECLARED), *_SYSTEM})
_OPERATION: Final = ("db.operation.name", "db.operation")
_ASKED: Final = ("db.query.text", "db.statement", "db.query.summary")
_RETURNED: Final = "db.response.returned_rows"
_LISTED: Final = "gen_ai.retrieval.documents"
_NUMBERED: Final = re.compile(r"retrieval\.documents\.(\d+)\.")
_HITS: Final = frozenset({"db.query.result", "db.search.result"})
"""Span events that stand for one document each."""

_MOST_LOOKED_AT: Final = 16_384
"""Characters of a query."""


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)


_READS: Final = _pattern(
    "search|query|retriev|recommend|discover|scroll|fetch|get|find|near|similar|knn|hybrid|select"
)
_SEARCHES: Final = _pattern("search|knn|esql|sql.query")
_REDIS: Final = _pattern(r"\bFT\.(SEARCH|AGGREGATE|HYBRID)\b|\bVSIM\b")

_GENERAL: Final[Mapping[str, re.Pattern[str]]] = {
    "elasticsearch": _SEARCHES,
    "opensearch": _SEARCHES,
    "redis": _REDIS,
    "valkey": _REDIS,
    "postgresql": _pattern(r"<->|<=>|<#>|<[+]>|<~>|<%>|@@|\bts_rank"),
    "mongodb": _pattern(r"[$](vectorSearch|search)\b"),
    "mysql": _pattern(r"\bMATCH\b.+\bAGAINST\b|DISTANCE\("),
    "mariadb": _pattern(r"\bMATCH\b.+\bAGAINST\b|VEC_DISTANCE"),
    "sqlite": _pattern(r"\bMATCH\b|vec_distance"),
    "cassandra": _pattern(r"\bANN\s+OF\b"),
    "neo4j": _pattern(r"db\.index\.(vector|fulltext)\.query"),
    "clickhouse": _pattern(r"(L2|cosine)Distance"),
}
"""Stores that serve much else, and what a search of theirs looks like."""


def is_retrieval(span: Any, stores: frozenset[str]) -> bool:
    """Whether a finished SDK span is a retrieval.

    Args:
        span: The span.
        stores: Database systems whose searches count, in lower case.
    """
    attributes = span.attributes or {}
    if _TELLING.isdisjoint(attributes):  # most spans: each look-up of what is not there costs more
        return False
    return _is_declared(attributes) or _is_search(span.name, attributes, stores)


def documents_of(span: Any) -> int | None:
    """How many documents came back, by whichever way the span says it; None where it does not."""
    attributes = span.attributes or {}
    said = count(attributes.get(_RETURNED))
    if said is not None:
        return said
    if _LISTED in attributes:
        return _length(attributes[_LISTED])
    numbered = {found[1] for found in map(_NUMBERED.match, attributes) if found}
    hits = sum(event.name in _HITS for event in span.events)
    return len(numbered) or hits or None


def _is_declared(attributes: Mapping[str, Any]) -> bool:
    return any(str(attributes.get(key, "")).lower() == value for key, value in _DECLARED)


def _is_search(name: str, attributes: Mapping[str, Any], stores: frozenset[str]) -> bool:
    system = str(_first(attributes, _SYSTEM) or "").lower()
    if not system or system not in stores:
        return False
    operation = str(_first(attributes, _OPERATION) or name)
    if system not in _GENERAL:
        return _READS.search(operation) is not None
    asked = str(_first(attributes, _ASKED) or "")[:_MOST_LOOKED_AT]
    return _GENERAL[system].search(f"{operation} {asked}") is not None


def _first(attributes: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    return next((attributes[key] for key in keys if key in attributes), None)


def _length(documents: object) -> int | None:
    if isinstance(documents, str):
        with suppress(ValueError, RecursionError):
            documents = json.loads(documents)
    return len(documents) if isinstance(documents, list | tuple) else None
