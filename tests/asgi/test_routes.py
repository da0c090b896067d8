"""Paths: which are generations, which are quiet, and what a route is called under its mounts."""

import asyncio

import pytest
from fastapi import APIRouter, FastAPI
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route, Router

from llm_trace.asgi.routes import MAX_MOUNTS, MAX_REMEMBERED, OPERATIONS, Routes, template
from llm_trace.core import faults
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


def included_app():
    """FastAPI: a router in a router, in the app and in one that is mounted."""
    inner, outer = APIRouter(), APIRouter()
    inner.get("/deep/{j}")(lambda j: j)
    outer.get("/items/{i}")(lambda i: i)
    outer.include_router(inner, prefix="/in")
    app, mounted = FastAPI(), FastAPI()
    for one in (app, mounted):
        one.include_router(outer, prefix="/api")
    app.mount("/m", mounted)
    return app


@pytest.mark.parametrize("root_path", ["", "/proxy"])
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/items/1", "/api/items/{i}"),
        ("/api/in/deep/2", "/api/in/deep/{j}"),
        ("/m/api/items/1", "/m/api/items/{i}"),
        ("/m/api/in/deep/2", "/m/api/in/deep/{j}"),
    ],
)
def test_a_route_has_the_prefixes_of_its_routers(path, expected, root_path):
    """What is included in a router that is included is called by all of their prefixes."""
    recorder = Recorder()
    scope = http_scope(root_path + path, method="GET", root_path=root_path)

    asyncio.run(drive(included_app(), recorder, scope=scope))

    assert (200, expected) == (recorder.record.http.status, recorder.record.http.route)


def forgetful(app):
    """`app` on a Starlette that leaves no route in the scope, as most versions do."""

    async def forgets(scope, receive, send):
        async def forget(message):
            scope.pop("route", None)
            await send(message)

        await app(scope, receive, forget)

    return forgets


@pytest.mark.parametrize("root_path", ["", "/proxy"])
@pytest.mark.parametrize(
    ("path", "expected"), [*ROUTES.items(), ("/v1/none", "/v1"), ("/plain/", None)]
)
def test_where_starlette_leaves_no_route_it_is_found_again(path, expected, root_path):
    """By the routers' own matching, so that an old version names the same template."""
    recorder = Recorder()
    scope = http_scope(root_path + path, method="GET", root_path=root_path)

    asyncio.run(drive(forgetful(starlette_app()), recorder, scope=scope))

    assert expected == recorder.record.http.route


def test_another_method_of_a_route_is_still_that_route():
    """405 is answered by the route whose path fits, also where it has to be found again."""
    recorder = Recorder()

    asyncio.run(drive(forgetful(starlette_app()), recorder, scope=http_scope("/plain/1")))

    assert (405, "/plain/{i}") == (recorder.record.http.status, recorder.record.http.route)


def tenants(make):
    """An app whose mount has a parameter."""
    app = make()
    app.mount("/of/{tenant}", make())
    return app


@pytest.mark.parametrize(
    ("make", "path", "expected"),
    [
        (starlette_app, "/of/acme/plain/1", "/of/{tenant}/plain/{i}"),
        (starlette_app, "/of/acme/v1/items/1", "/of/{tenant}/v1/items/{i}"),
        (starlette_app, "/of/acme/none", "/of/{tenant}"),
        (fastapi_app, "/of/acme/v1/items/1", "/of/{tenant}/v1/items/{i}"),
        (included_app, "/of/acme/api/items/1", "/of/{tenant}/api/items/{i}"),
    ],
)
@pytest.mark.parametrize("root_path", ["", "/proxy"])
def test_a_mount_with_parameters_is_a_template_too(make, path, expected, root_path):
    """Whoever it is mounted for: their names are values, which a route never holds."""
    recorder = Recorder()
    scope = http_scope(root_path + path, method="GET", root_path=root_path)

    asyncio.run(drive(tenants(make), recorder, scope=scope))

    assert expected == recorder.record.http.route


def test_mounts_without_end_are_called_by_their_prefix():
    """A mount that contains itself is followed so far and no further."""
    loop = Mount("/x", routes=[])
    loop.app.routes.append(loop)
    router = Router([loop])

    scope = {"router": router, "endpoint": page, "path": "/x" * 99, "type": "http"}

    assert "/x" * MAX_MOUNTS == template(scope)


class Stubborn(Route):
    """A route of an app's own kind, which is asked once and no more."""

    asked = False

    def matches(self, scope):
        """Match the first time."""
        if self.asked:
            raise RuntimeError("asked again")
        self.asked = True
        return super().matches(scope)


def test_a_route_that_raises_costs_only_the_template():
    """The record is there, without a route."""
    recorder = Recorder()
    app = forgetful(Starlette(routes=[Stubborn("/x", page)]))

    with faults.production():
        asyncio.run(drive(app, recorder, scope=http_scope("/x", method="GET")))

    assert (200, None) == (recorder.record.http.status, recorder.record.http.route)


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
