"""Which requests are generations, which are quiet, and what a route is called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Final

from llm_trace.asgi.types import Scope
from llm_trace.core import faults

QUIET_METHODS: Final = frozenset({"OPTIONS", "HEAD", "TRACE"})

OPERATIONS: Final[Mapping[str, str]] = {
    "/chat/completions": "chat",
    "/chat/completions/batch": "chat",
    "/v1/responses": "chat",
    "/v1/messages": "chat",
    "/api/chat": "chat",
    "/v1/completions": "text_completion",
    "/api/generate": "text_completion",
    "/generate": "text_completion",
    ":generateContent": "generate_content",
    ":streamGenerateContent": "generate_content",
    "/embeddings": "embeddings",
    "/api/embed": "embeddings",
    "/pooling": "embeddings",
    "/classify": "embeddings",
    "/score": "embeddings",
    "/rerank": "embeddings",
}
"""Path suffixes that engines and gateways agree on, and their `gen_ai.operation.name`."""


MAX_MOUNTS: Final = 16
"""Mounts in mounts; what lies deeper is called by its prefix."""

MAX_REMEMBERED: Final = 512
"""Longer paths are looked up afresh each time: what is remembered must stay small."""


class Routes:
    """The settings' view of paths; looks each path up once and remembers a bounded number."""

    def __init__(self, extra: Mapping[str, str], quiet: tuple[str, ...]) -> None:
        suffixes = {**OPERATIONS, **extra}

        @lru_cache(maxsize=1024)
        def look_up(path: str) -> tuple[bool, str | None]:
            if any(fnmatchcase(path, pattern) for pattern in quiet):
                return True, None
            matches = (suffix for suffix in suffixes if path.endswith(suffix))
            longest = max(matches, key=len, default=None)
            return False, suffixes[longest] if longest else None

        self._look_up = look_up

    def is_quiet(self, scope: Scope) -> bool:
        """Whether a request is a probe, a preflight or a scrape: out of the way entirely."""
        path = scope["path"]
        if scope["method"] in QUIET_METHODS or self._of(path)[0]:
            return True
        prefix = scope.get("root_path", "")  # of a proxy or mount: servers leave it in the path
        return prefix != "" and path.startswith(prefix) and self._of(path[len(prefix) :])[0]

    def operation(self, path: str) -> str | None:
        """`gen_ai.operation.name` of a path, or None when only the request itself can tell."""
        return self._of(path)[1]

    def is_replay(self, scope: Scope) -> bool:
        """Whether a stream is of an answer that was given before, as `GET /v1/responses/{id}` is.

        A GET elsewhere may generate: browsers read streams by it.
        """
        parent = scope["path"].rstrip("/").rpartition("/")[0]
        return scope["method"] == "GET" and self.operation(parent) is not None

    def _of(self, path: str) -> tuple[bool, str | None]:
        look_up = self._look_up if len(path) <= MAX_REMEMBERED else self._look_up.__wrapped__
        return look_up(path)


def template(scope: Scope) -> str | None:
    """The route's template under its mounts, without a proxy's prefix; known after routing.

    A route of an app's own kind may raise: that costs the request its template and nothing else.
    """
    try:
        return _template(scope)
    except Exception as error:  # noqa: BLE001 - rule 1: never hurt the host
        faults.contain("route", error)
        return None


def _template(scope: Scope) -> str | None:
    route = scope.get("route")
    if route is None or _under_parameters(scope, route):
        return _walked(scope)
    path = getattr(_included(scope, route), "path", None)
    if not isinstance(path, str):
        return None
    base = scope.get("app_root_path")
    mounted = scope.get("root_path", "").removeprefix(base) if isinstance(base, str) else ""
    if hasattr(route, "routes"):  # a mount that nothing below answered: its path is in the root's
        return mounted or None
    return f"{mounted}{path}"


def _included(scope: Scope, route: object) -> object:
    """The route as it was included: FastAPI keeps the prefixes of its routers beside it."""
    of_fastapi = scope.get("fastapi")
    if not isinstance(of_fastapi, Mapping):
        return route
    effective = of_fastapi.get("effective_route_context")
    return effective if getattr(effective, "original_route", None) is route else route


def _under_parameters(scope: Scope, route: object) -> bool:
    """Whether a mount above has parameters: the path that it left is made of their values."""
    own = getattr(route, "param_convertors", None)
    given = scope.get("path_params")
    if not (isinstance(own, Mapping) and isinstance(given, Mapping)):
        return False
    return bool(given if hasattr(route, "routes") else given.keys() - own)


def _walked(scope: Scope) -> str | None:
    """The template by the routers' own matching, for what they do not leave in the scope.

    Older versions of Starlette leave no route, and none says what a mount with parameters is
    called.
    """
    routes = getattr(scope.get("router"), "routes", None)
    if routes is None or "endpoint" not in scope:
        return None
    base = scope.get("app_root_path", scope.get("root_path", ""))  # mounts add to the latter
    at = {**scope, "root_path": base, "path_params": {}}
    path = ""
    for _ in range(MAX_MOUNTS):
        route, child = _first_match(routes, at)
        if not hasattr(route, "routes"):
            return f"{path}{_leaf(scope, route)}" or None
        path += getattr(route, "path", "")  # a host has none
        routes = route.routes or ()
        at.update(child)
    return path


def _leaf(scope: Scope, walked: object) -> str:
    route = scope.get("route", walked)
    return "" if hasattr(route, "routes") else getattr(_included(scope, route), "path", "")


def _first_match(routes: Iterable[Any], at: Scope) -> tuple[object, Scope]:
    """The route that takes `at`: the first that fits wholly, else the first of another method."""
    partly: tuple[object, Scope] = (None, {})
    for route in routes:
        match, child = route.matches(at)
        if match.name == "FULL":
            return route, child
        if match.name == "PARTIAL" and partly[0] is None:
            partly = route, child
    return partly
