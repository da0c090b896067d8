"""The same chat in frameworks that are not Starlette's: a retrieval, an engine, three tokens."""

import json

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import StreamingHttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from litestar import Litestar, Request, post
from litestar.response import Stream
from quart import Quart
from quart import request as quart_request

import llm_trace

PATH = "/v1/chat/completions"
TYPE = "text/event-stream"


def _event(text, reason=None):
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": reason}
    return f"data: {json.dumps({'model': 'm', 'choices': [choice]})}\n\n".encode()


async def _answer():
    async with llm_trace.retrieval("wiki"):
        pass
    async with llm_trace.engine_call("chat", "m") as call:
        call.mark("first_token")
        for word in ("one", "two", "three"):
            yield _event(word)
    yield _event("", "stop")
    yield b"data: [DONE]\n\n"


# Litestar: its responses run in a task group.


@post(PATH, status_code=200)
async def _litestar_chat(request: Request) -> Stream:
    await request.body()
    return Stream(_answer(), media_type=TYPE)


# Quart: it reads the body in a task of its own.


def _quart():
    app = Quart(__name__)

    @app.post(PATH)
    async def chat():
        await quart_request.get_data()
        return _answer(), 200, {"content-type": TYPE}

    return app


# Django: what must be is run in threads.


@csrf_exempt
async def _django_chat(request):
    assert request.body
    return StreamingHttpResponse(_answer(), content_type=TYPE)


urlpatterns = [path(PATH[1:], _django_chat)]


def _django():
    if not settings.configured:
        settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], LOGGING_CONFIG=None)
    return get_asgi_application()


def _litestar():
    return Litestar([_litestar_chat], logging_config=None)


FRAMEWORKS = {"Litestar": _litestar, "Quart": _quart, "Django": _django}
"""None of them configures the logging of the whole process, as two of them do if left alone."""
