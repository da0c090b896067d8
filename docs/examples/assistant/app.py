"""The app: its parts put together. The line for llm_trace is the last but one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware

import llm_trace
from assistant.answers import Answers
from assistant.config import Config
from assistant.engine import Engine
from assistant.limits import Buckets
from assistant.routes import chats, shelves
from assistant.shelf import Shelf
from assistant.telemetry import set_up


@asynccontextmanager
async def _life(app: FastAPI) -> AsyncIterator[None]:
    config: Config = app.state.config
    async with httpx.AsyncClient(base_url=config.engine, timeout=60, trust_env=False) as client:
        app.state.shelf = Shelf(config.database)
        app.state.answers = Answers(Engine(client, config.model), app.state.shelf)
        app.state.buckets = Buckets(config.per_minute)
        yield


def _bad_gateway(_request: Request, _error: Exception) -> JSONResponse:
    return JSONResponse({"error": {"message": "the engine did not answer"}}, 502)


def create() -> FastAPI:
    """Build the app from the environment, for uvicorn."""
    set_up()
    app = FastAPI(title="Assistant", lifespan=_life)
    app.state.config = Config.from_env()
    app.add_exception_handler(httpx.HTTPError, _bad_gateway)
    app.include_router(chats, prefix="/v1")
    app.include_router(shelves)
    app.add_middleware(GZipMiddleware)
    app.add_middleware(CORSMiddleware, allow_origins=["*"], allow_methods=["GET", "POST"])
    llm_trace.instrument(app)
    return app
