"""An app that retrieves from real stores, through instrumentations that are not ours.

It says nothing of retrieval to llm_trace: Qdrant's client is instrumented by OpenLLMetry, and
LangChain's retriever by OpenInference. Its provider is set when it starts, after ours looked.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.qdrant import QdrantInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from qdrant_client import QdrantClient
from qdrant_client.models import Distance, PointStruct, VectorParams

import llm_trace

SHELF = "shelf"
SIZE = 64


class Shelf(BaseRetriever):
    """LangChain's retriever over a Qdrant that is held in memory."""

    client: object

    def _get_relevant_documents(self, query, *, run_manager):
        found = self.client.query_points(SHELF, query=vector(len(query)), limit=3).points
        return [Document(page_content=str(point.id)) for point in found]


def vector(seed):
    """An embedding, of sorts."""
    return [((seed * 31 + place * 17) % 97) / 97 for place in range(SIZE)]


def filled():
    """A store with some documents in it."""
    client = QdrantClient(":memory:")
    client.create_collection(SHELF, VectorParams(size=SIZE, distance=Distance.COSINE))
    client.upsert(SHELF, [PointStruct(id=n, vector=vector(n)) for n in range(500)])
    return client


@asynccontextmanager
async def lifespan(app):
    """Set up telemetry as many do: when the app starts."""
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(), schedule_delay_millis=100))
    trace.set_tracer_provider(provider)
    QdrantInstrumentor().instrument()
    LangChainInstrumentor().instrument()
    app.state.shelf = Shelf(client=filled())
    yield
    provider.shutdown()


def create():
    """The app under `instrument`."""
    app = FastAPI(lifespan=lifespan)
    app.post("/v1/chat/completions")(_chat)
    return llm_trace.instrument(app)


async def _chat(request: Request):
    """Retrieve as the body says, then stream one token."""
    shelf, question = request.app.state.shelf, "which wait was it"
    if (await request.json())["by"] == "qdrant":
        found = shelf.client.query_points(SHELF, query=vector(len(question)), limit=3).points
    else:
        found = await shelf.ainvoke(question)
    return StreamingResponse(_tokens(len(found)), media_type="text/event-stream")


async def _tokens(number):
    with llm_trace.engine_call("chat", "staged"):
        choice = {"index": 0, "delta": {"content": f"{number}"}}
        yield f"data: {json.dumps({'choices': [choice]})}\n\n"
    yield "data: [DONE]\n\n"
