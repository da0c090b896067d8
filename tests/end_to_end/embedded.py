"""An app that builds vLLM's engine itself, as a service that needs no OpenAI routes does."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.v1.engine.async_llm import AsyncLLM

import llm_trace
import llm_trace_vllm

engines = []


@asynccontextmanager
async def lifespan(_app):
    """The engine lives as long as the app serves."""
    args = AsyncEngineArgs(
        model=os.environ["EMBEDDED_MODEL"],
        load_format="dummy",
        dtype="bfloat16",
        enforce_eager=True,
        max_model_len=4096,
        max_num_seqs=4,
        max_num_batched_tokens=512,
        block_size=32,
        kv_cache_memory_bytes=64 << 20,
    )
    engines.append(AsyncLLM.from_engine_args(args))
    llm_trace_vllm.trace(engines[0])
    yield
    engines[0].shutdown()


app = FastAPI(lifespan=lifespan)
llm_trace.instrument(app)


@app.post("/generate")
async def generate(question: dict):
    """Tokens of an answer, as events of a dialect that llm_trace knows."""
    params = SamplingParams(max_tokens=question["max_tokens"], ignore_eos=True)
    prompt = {"prompt_token_ids": question["prompt"]}

    async def events():
        async for output in engines[0].generate(prompt, params, question["id"]):
            text = "x" * len(output.outputs[0].token_ids)
            yield f'data: {{"choices":[{{"index":0,"text":"{text}"}}]}}\n\n'
        yield "data: [DONE]\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")
