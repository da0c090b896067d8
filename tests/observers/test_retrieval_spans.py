"""Which spans are retrievals: a search is told from everything else that a store does."""

import json

import pytest
from opentelemetry.sdk.trace import TracerProvider

from llm_trace.observers.retrieval_spans import documents_of, is_retrieval
from llm_trace.settings import RETRIEVAL_STORES

STORES = frozenset(RETRIEVAL_STORES)


def span(name="span", events=(), **attributes):
    """A span as an instrumentation leaves it; `__` stands for a dot."""
    made = TracerProvider(shutdown_on_exit=False).get_tracer("theirs").start_span(name)
    made.set_attributes({key.replace("__", "."): value for key, value in attributes.items()})
    for event in events:
        made.add_event(event)
    made.end()
    return made


PGVECTOR = "SELECT id FROM docs ORDER BY embedding <=> %s LIMIT 5"


@pytest.mark.parametrize(
    "found",
    [
        span("retrieval handbook", gen_ai__operation__name="retrieval"),
        span("VectorStoreRetriever", openinference__span__kind="RETRIEVER"),
        span("retrieve", langfuse__observation__type="retriever"),
        span("qdrant.query_points", db__system="Qdrant"),
        span("query docs", db__system__name="qdrant", db__operation__name="query_points"),
        span("pinecone.query", db__system="Pinecone"),
        span("milvus.search", db__system="milvus", db__operation="search"),
        span("chroma.query", db__system="chroma"),
        span("search", db__system__name="elasticsearch", db__operation__name="search"),
        span("FT.SEARCH", db__system="redis", db__statement="FT.SEARCH idx ? KNN"),
        span("SELECT docs", db__system__name="postgresql", db__query__text=PGVECTOR),
        span("SELECT", db__system="postgresql", db__statement="SELECT 1 WHERE body @@ ?"),
        span("aggregate", db__system="mongodb", db__statement='[{"$vectorSearch": {}}]'),
        span("SELECT", db__system="sqlite", db__statement="SELECT * FROM f WHERE f MATCH ?"),
    ],
    ids=lambda found: found.name,
)
def test_a_search_is_a_retrieval(found):
    """Whoever names it: the conventions, OpenInference, or a client of a store."""
    assert is_retrieval(found, STORES)


@pytest.mark.parametrize(
    "other",
    [
        span("chat m", gen_ai__operation__name="chat"),
        span("embeddings m", gen_ai__operation__name="embeddings"),
        span("LLM", openinference__span__kind="LLM"),
        span("GET /"),
        span("qdrant.upsert", db__system="qdrant"),
        span("delete docs", db__system__name="qdrant", db__operation__name="delete"),
        span("chroma.add", db__system="chroma"),
        span("index", db__system__name="elasticsearch", db__operation__name="index"),
        span("GET", db__system="redis", db__statement="GET session:?"),
        span("SELECT users", db__system__name="postgresql", db__query__text="SELECT * FROM users"),
        span("find", db__system="mongodb", db__statement='{"user": "?"}'),
        span("search", db__system__name="my_store", db__operation__name="search"),
        span("retrieval", db__system=5),
    ],
    ids=lambda other: other.name,
)
def test_what_else_a_store_does_is_none(other):
    """Writes, sessions, logins and stores that nobody listed keep their time where it was."""
    assert not is_retrieval(other, STORES)


def test_a_store_that_is_listed_counts():
    """The setting adds stores that we do not know."""
    searched = span("search", db__system__name="My_Store", db__operation__name="search")

    assert is_retrieval(searched, frozenset({"my_store"}))


NUMBERED = {
    f"retrieval.documents.{number}.document.{part}": "x"
    for number in range(12)
    for part in ("content", "id", "score")
}


@pytest.mark.parametrize(
    ("said", "documents"),
    [
        (span(db__response__returned_rows=7), 7),
        (span(db__response__returned_rows=0), 0),
        (span(**{"retrieval.documents.count.x": "y"}), None),
        (span(**NUMBERED), 12),
        (span(gen_ai__retrieval__documents=json.dumps([{"id": 1}, {"id": 2}])), 2),
        (span(gen_ai__retrieval__documents=("a", "b", "c")), 3),
        (span(gen_ai__retrieval__documents="no JSON"), None),
        (span(gen_ai__retrieval__documents="[" * 100_000), None),
        (span(events=["db.query.result"] * 4), 4),
        (span(), None),
    ],
)
def test_documents_are_counted_where_the_span_shows_them(said, documents):
    """By rows, by numbered attributes, by a list or by events; else they are unknown."""
    assert documents == documents_of(said)
