"""aiohttp's client sessions.

Every request of a session, whatever its verb, is one `_request`, private and the same since aiohttp
2: the public trace signals reach only sessions that are built after they were made, and do not see
the bytes of a stream. A connector's `connect` returns when there is a connection. The answer's
`content` is the same reader, watched; `release` and `close` tell when the app lets go of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from functools import cache, partial
from types import ModuleType
from typing import Any, Final

from llm_trace.core import inband
from llm_trace.upstream.attempt import Attempt, contained, now_sending
from llm_trace.upstream.calls import begin
from llm_trace.upstream.patches import Patches
from llm_trace.upstream.targets import Url

_TAKEN_OUT: Final = frozenset({inband.HEADER.encode(), inband.SERVER_TIMING.encode()})


def patch(patches: Patches, module: ModuleType) -> None:
    """Watch the sessions of `module`, which is aiohttp."""

    def make(request: Callable[..., Any]) -> Callable[..., Any]:
        async def traced(self: Any, method: str, str_or_url: Any, **kwargs: Any) -> Any:
            attempt = _begin(self, method, str_or_url, kwargs) if patches.on else None
            if attempt is None:
                return await request(self, method, str_or_url, **kwargs)
            headers = _copied(kwargs.get("headers"))
            with attempt.sending(headers):
                response = await request(self, method, str_or_url, **{**kwargs, "headers": headers})
            _watch(response, attempt, module)
            return response

        return traced

    patches.wrap(module.ClientSession, "_request", make)
    patches.wrap(module.BaseConnector, "connect", _connecting)


def _connecting(connect: Callable[..., Any]) -> Callable[..., Any]:
    async def connected(*args: Any, **kwargs: Any) -> Any:
        connection = await connect(*args, **kwargs)
        attempt = now_sending()
        if attempt is not None:
            attempt.wrote()
        return connection

    return connected


def _begin(session: Any, method: str, str_or_url: Any, kwargs: Mapping[str, Any]) -> Attempt | None:
    def url() -> Url:
        from yarl import URL  # noqa: PLC0415 - comes with aiohttp

        build = getattr(session, "_build_url", None)  # joins the session's base URL
        try:
            made = build(str_or_url) if build else URL(str_or_url)
        except (TypeError, ValueError):  # which the session says in its own way
            made = URL()
        return Url(made.scheme, made.host or "", made.explicit_port, made.path)

    def read() -> bytes | Mapping[str, Any]:
        if isinstance(kwargs.get("json"), Mapping):
            document: Mapping[str, Any] = kwargs["json"]
            return document
        data = kwargs.get("data")
        data = data.encode() if isinstance(data, str) else data
        return data if isinstance(data, bytes) else b""

    return begin(method, url, read)


def _copied(headers: Any) -> Any:
    """The app's headers in a mapping of our own, of the kind that the session makes itself."""
    from multidict import CIMultiDict  # noqa: PLC0415 - comes with aiohttp

    return CIMultiDict(headers or ())


def _watch(response: Any, attempt: Attempt, module: ModuleType) -> None:
    _read_head(response, attempt)
    if response.content.at_eof():  # there is nothing to read, or the session has read it
        attempt.complete()
        return
    response.content = _reader_class(module.StreamReader)(response.content, attempt)
    for name in ("release", "close"):
        setattr(response, name, _letting_go(response, name, attempt))


@contained
def _read_head(response: Any, attempt: Attempt) -> None:
    from multidict import CIMultiDict  # noqa: PLC0415 - comes with aiohttp

    headers = CIMultiDict(response.headers)
    timings = headers.getall(inband.SERVER_TIMING, ())
    if timings:
        headers[inband.SERVER_TIMING] = ", ".join(timings)
    attempt.answered(response.status, headers)
    if inband.HEADER in response.headers and inband.HEADER not in headers:
        _set_head(response, headers)


def _set_head(response: Any, headers: Any) -> None:
    """Show the app `headers`; aiohttp has no way to change those of an answer but this one."""
    from multidict import CIMultiDictProxy  # noqa: PLC0415 - comes with aiohttp

    raw = [pair for pair in response.raw_headers if pair[0].lower() not in _TAKEN_OUT]
    if inband.SERVER_TIMING in headers:
        raw.append((b"Server-Timing", headers[inband.SERVER_TIMING].encode("utf-8", "replace")))
    response._headers, response._raw_headers = CIMultiDictProxy(headers), tuple(raw)  # noqa: SLF001
    for name in ("headers", "raw_headers"):
        response._cache.pop(name, None)  # noqa: SLF001


def _letting_go(response: Any, name: str, attempt: Attempt) -> Callable[..., Any]:
    """The method, heard; it must not keep the response alive, which closes what an app forgets."""
    method, itself = getattr(type(response), name), weakref.ref(response)

    def let_go(*args: Any, **kwargs: Any) -> Any:
        this = itself()
        try:
            return None if this is None else method(this, *args, **kwargs)
        finally:
            attempt.left()

    return let_go


class _Watched:
    """A reader whose every way of reading leads past the attempt; the rest is the reader's own."""

    def __init__(self, reader: Any, attempt: Attempt) -> None:
        self._reader = reader
        self._attempt = attempt

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    async def read(self, n: int = -1) -> bytes:
        """Read up to `n` bytes, or all."""
        return await self._next(lambda: self._reader.read(n), wanted=n != 0)

    async def readany(self) -> bytes:
        """Read what is there."""
        return await self._next(self._reader.readany)

    async def readline(self, **kwargs: Any) -> bytes:
        """Read a line."""
        return await self._next(lambda: self._reader.readline(**kwargs))

    async def readuntil(self, *args: Any, **kwargs: Any) -> bytes:
        """Read up to a separator."""
        return await self._next(lambda: self._reader.readuntil(*args, **kwargs))

    async def readexactly(self, n: int) -> bytes:
        """Read `n` bytes."""
        data = b""
        while len(data) < n:
            data += await self._next(partial(self._reader.readexactly, n - len(data)))
        return data

    async def readchunk(self) -> tuple[bytes, bool]:
        """Read a chunk of the transfer, and whether it ends there."""
        ends = False

        async def read() -> bytes:
            nonlocal ends
            data, ends = await self._reader.readchunk()
            return bytes(data)

        return await self._next(read), ends

    def read_nowait(self, n: int = -1) -> bytes:
        """Read what is there without waiting."""
        with self._failing():
            data = self._reader.read_nowait(n)
        return self._attempt.read(data)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return _until_empty(self.readline)

    def iter_chunked(self, n: int) -> AsyncIterator[bytes]:
        """Iterate over parts of up to `n` bytes."""
        return _until_empty(lambda: self.read(n))

    def iter_any(self) -> AsyncIterator[bytes]:
        """Iterate over what is there."""
        return _until_empty(self.readany)

    async def iter_chunks(self) -> AsyncIterator[tuple[bytes, bool]]:
        """Iterate over the chunks of the transfer."""
        while (chunk := await self.readchunk()) != (b"", False):
            yield chunk

    async def _next(self, read: Callable[[], Awaitable[bytes]], *, wanted: bool = True) -> bytes:
        """What the app gets for one read; one that brought nothing but the ledger is repeated."""
        while True:
            with self._failing():
                data = await read()
            kept = self._attempt.read(data) if data else b""
            if self._reader.at_eof():
                return kept + self._attempt.complete()
            if kept or not (data and wanted):
                return kept

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except asyncio.IncompleteReadError as short:  # which says that it is the end
            self._attempt.read(short.partial)
            self._attempt.complete()
            raise
        except BaseException as error:
            self._attempt.failed(error)
            raise


async def _until_empty(read: Callable[[], Awaitable[bytes]]) -> AsyncIterator[bytes]:
    while data := await read():
        yield data


@cache
def _reader_class(base: type[Any]) -> type[Any]:
    """`_Watched` as a subclass of aiohttp's reader, which payloads are recognised by.

    What is not overridden would run on the subclass's own, empty state: all of it is handed on.
    """
    handed_on = {
        name: _handed_on(name)
        for name in dir(base)
        if not name.startswith("__") and name not in vars(_Watched)
    }
    return type("WatchedReader", (_Watched, base), handed_on)


def _handed_on(name: str) -> property:
    def hand_on(watched: _Watched, value: object) -> None:
        setattr(watched._reader, name, value)  # noqa: SLF001 - the same concept

    return property(lambda self: getattr(self._reader, name), hand_on)
