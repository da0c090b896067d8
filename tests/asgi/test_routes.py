"""Paths: which are generations, which are quiet, and what a route is called under its mounts."""

import asyncio

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from llm_trace.asgi.routes import MAX_REMEMBERED, OPERATIONS, Routes, template
from llm_trace.settings import QUIET_PATHS
from llm_trace.testing import Recorder, drive, http_scope


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        *OPERATIONS.items(),
        ("/openai/v1/chat/completions", "chat"),
        ("/v1beta/models/gemini:streamGenerateContent", "generate_content"),
        ("/v1/completions", "text_completion"),
        ("/ask", "chat"),
        ("/v1/ask", "chat"),
        ("/task/score", "mine"),
        ("/chat/completions/", None),
        ("/", None),
        ("", None),
    ],
)
def test_a_path_tells_its_operation(path, expected):
    """The longest suffix wins, and those of the settings count like the known ones."""
    routes = Routes({"/ask": "chat", "/task/score": "mine"}, ())

    assert expected == routes.operation(path)


def test_long_paths_are_not_remembered():
    """A hostile path is answered like any other and takes no memory."""
    routes = Routes({}, QUIET_PATHS)
    long = "/" + "x" * MAX_REMEMBERED

    for number in range(10):
        assert routes.operation(f"{long}{number}/chat/completions") == "chat"
        assert not routes.is_quiet(http_scope(f"{long}{number}"))

    assert routes._look_up.cache_info().currsize == 0


@pytest.mark.parametrize(
    ("path", "root_path", "expected"),
    [
        ("/health", "", True),
        ("/proxy/health", "/proxy", True),
        ("/health", "/proxy", True),
        ("/proxy/health", "", False),
        ("/proxyhealth", "/proxy", False),
        ("/v1/models", "/v1", True),
        ("/v1/chat/completions", "/v1", False),
    ],
)
def test_quiet_paths_hold_with_and_without_a_prefix(path, root_path, expected):
    """A pattern fits the path as it came, or the path below its root."""
    routes = Routes({}, QUIET_PATHS)

    assert expected == routes.is_quiet(http_scope(path, method="GET", root_path=root_path))


def page(_request):
    """Answer."""
    return PlainTextResponse("hi")


def starlette_app():
    """Starlette: a route, one under a mount, one under two."""
    inner = Starlette(
        routes=[Route("/items/{i}", page), Mount("/deep", routes=[Route("/x", page)])]
    )
    return Starlette(routes=[Mount("/v1", inner), Route("/plain/{i}", page)])


def fastapi_app():
    """The same in FastAPI."""
    deep, inner, app = FastAPI(), FastAPI(), FastAPI()
    deep.get("/x")(lambda: "hi")
    inner.get("/items/{i}")(lambda i: i)
    app.get("/plain/{i}")(lambda i: i)
    inner.mount("/deep", deep)
    app.mount("/v1", inner)
    return app


ROUTES = {
    "/v1/items/1": "/v1/items/{i}",
    "/v1/deep/x": "/v1/deep/x",
    "/plain/1": "/plain/{i}",
    "/none": None,
}


@pytest.mark.parametrize("make", [starlette_app, fastapi_app])
@pytest.mark.parametrize("root_path", ["", "/proxy"])
@pytest.mark.parametrize(("path", "expected"), ROUTES.items())
def test_a_route_is_its_template_under_its_mounts(make, root_path, path, expected):
    """With and without a proxy's prefix; what nobody routes has none."""
    recorder = Recorder()
    scope = http_scope(root_path + path, method="GET", root_path=root_path)

    asyncio.run(drive(make(), recorder, scope=scope))

    assert expected == recorder.record.http.route


def test_a_mount_that_nothing_answered_is_called_by_its_prefix():
    """Below a mount of files or of another app there is no template but the mount's own."""
    recorder = Recorder()

    asyncio.run(drive(starlette_app(), recorder, scope=http_scope("/v1/none", method="GET")))

    assert recorder.record.http.route == "/v1"


def test_a_prefix_that_the_app_declares_is_no_part_of_the_route():
    """`FastAPI(root_path=...)` behind a proxy that strips the prefix names the same route."""
    app = fastapi_app()
    app.root_path = "/proxy"
    recorder = Recorder()

    asyncio.run(drive(app, recorder, scope=http_scope("/plain/1", method="GET")))

    assert "/plain/{i}" == recorder.record.http.route


class Strange:
    """A route without a path of text."""

    path = 5


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ({}, None),
        ({"route": Strange()}, None),
        ({"route": Route("/x", page), "app_root_path": "/a", "root_path": "/b"}, "/b/x"),
        ({"route": Route("/x", page), "root_path": "/b"}, "/x"),
        ({"route": Route("/x", page), "app_root_path": ""}, "/x"),
        ({"route": Mount("/m", routes=[]), "app_root_path": "", "root_path": ""}, None),
    ],
)
def test_a_strange_scope_has_a_route_or_none(scope, expected):
    """Routers of other frameworks may say less, or something else."""
    assert expected == template(scope)
