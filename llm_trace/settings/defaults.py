"""Defaults that are lists: the usual paths that nobody traces, the usual stores of documents."""

from __future__ import annotations

from typing import Final

QUIET_PATHS: Final = (
    *("/health*", "/livez", "/readyz", "/ready", "/live", "/ping", "/metrics", "/metrics/"),
    *("/docs", "/docs/*", "/redoc", "/openapi.json", "/favicon.ico", "/version", "/load"),
    *("*/v1/models", "/api/tags", "/api/version"),
)

RETRIEVAL_STORES: Final = (
    *("qdrant", "milvus", "pinecone", "weaviate", "chroma", "chromadb", "lancedb", "marqo"),
    *("vespa", "turbopuffer", "elasticsearch", "opensearch", "redis", "valkey", "mongodb"),
    *("postgresql", "mysql", "mariadb", "sqlite", "cassandra", "neo4j", "clickhouse"),
)
