"""Which requests of the app are calls of an engine, by their URLs."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from llm_trace.asgi.routes import Routes
from llm_trace.settings import Settings

GENERATIONS: Final = frozenset({"chat", "text_completion", "generate_content"})
"""Operations that answer; embeddings and scores prepare answers, they are the app's own time."""


class Url(NamedTuple):
    """A URL as far as it tells an engine; its query and its user never leave the client."""

    scheme: str
    host: str
    port: int | None
    path: str

    def __str__(self) -> str:
        port = f":{self.port}" if self.port else ""
        return f"{self.scheme}://{self.host}{port}{self.path}"


Find = Callable[[Url], str | None]

_known: dict[int, tuple[Settings, Find]] = {}


def operation_of(settings: Settings, url: Url) -> str | None:
    """`gen_ai.operation.name` of a POST to `url`; None where it is no call of an engine."""
    found = _known.get(id(settings))
    if found is None or found[0] is not settings:
        found = _known[id(settings)] = (settings, _finder(settings))
    return found[1](url)


def _finder(settings: Settings) -> Find:
    """The settings are of an app, and there are as many as there are apps."""
    routes = Routes(settings.routes, ())
    patterns = tuple(settings.upstream_urls)

    def by_route(url: Url) -> str | None:
        operation = routes.operation(url.path)
        return operation if operation in GENERATIONS else None

    def by_pattern(url: Url) -> str | None:
        listed = any(
            fnmatchcase(url.path if pattern.startswith("/") else str(url), pattern)
            for pattern in patterns
        )
        return routes.operation(url.path) or "chat" if listed else None

    return by_pattern if patterns else by_route
