"""httpx and its successor httpx2, sync and async, by hand or inside of the openai client.

`send` is where every request of a client goes through, whatever its transport: each retry of the
openai client is one `send`. The answer is asked for as a stream and read here as `send` itself
would, so that its bytes can be watched on their way; nothing is read ahead.
"""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

from llm_trace.upstream.attempt import Attempt
from llm_trace.upstream.calls import begin
from llm_trace.upstream.patches import Patches
from llm_trace.upstream.targets import Url

_TRACE: Final = "trace"
_WRITES: Final = ".send_request_headers.started"


def patch(patches: Patches, module: ModuleType) -> None:
    """Watch the clients of `module`, which is httpx or looks like it."""
    # The clients check that a stream is of their own library's class.
    sync_stream = type("WatchedStream", (_WatchedSync, module.SyncByteStream), {})
    async_stream = type("WatchedAsyncStream", (_WatchedAsync, module.AsyncByteStream), {})
    patches.wrap(module.Client, "send", lambda send: _sync_send(patches, send, sync_stream))
    patches.wrap(module.AsyncClient, "send", lambda send: _async_send(patches, send, async_stream))
    patches.wrap(module.Response, "iter_bytes", lambda method: _decoding(method, _sifted))
    patches.wrap(module.Response, "aiter_bytes", lambda method: _decoding(method, _sifted_async))


def _begin(request: Any) -> Attempt | None:
    return begin(request.method, lambda: _url(request.url), lambda: _content(request))


def _content(message: Any) -> bytes:
    """The body; b"" of one that is made while it is sent, or was read away by somebody else."""
    try:
        content: bytes = message.content
    except Exception:  # noqa: BLE001 - httpx and httpx2 have classes of their own for it
        return b""
    return content


def _url(url: Any) -> Url:
    return Url(url.scheme, url.host, url.port, url.path)


def _sync_send(
    patches: Patches, send: Callable[..., Any], watched: type[Any]
) -> Callable[..., Any]:
    def traced(self: Any, request: Any, *args: Any, stream: bool = False, **kwargs: Any) -> Any:
        attempt = _begin(request) if patches.on else None
        if attempt is None:
            return send(self, request, *args, stream=stream, **kwargs)
        with attempt.sending(request.headers), _heard(request, _hearing(request, attempt)):
            response = send(self, request, *args, stream=True, **kwargs)
        _watch(response, attempt, watched)
        if not stream:
            try:
                response.read()
            except BaseException:
                response.close()
                raise
        return response

    return traced


def _async_send(
    patches: Patches, send: Callable[..., Any], watched: type[Any]
) -> Callable[..., Any]:
    async def traced(
        self: Any, request: Any, *args: Any, stream: bool = False, **kwargs: Any
    ) -> Any:
        attempt = _begin(request) if patches.on else None
        if attempt is None:
            return await send(self, request, *args, stream=stream, **kwargs)
        with attempt.sending(request.headers), _heard(request, _hearing_async(request, attempt)):
            response = await send(self, request, *args, stream=True, **kwargs)
        _watch(response, attempt, watched)
        if not stream:
            try:
                await response.aread()
            except BaseException:
                await response.aclose()
                raise
        return response

    return traced


# --- when the request was written: the transport's public `trace` extension -------------------


@contextmanager
def _heard(request: Any, hear: Callable[..., Any]) -> Iterator[None]:
    before = request.extensions
    request.extensions = {**before, _TRACE: hear}
    try:
        yield
    finally:
        after = dict(request.extensions)  # where the app's hooks may have put something, too
        if after.get(_TRACE) is hear:
            del after[_TRACE]
            after.update((name, value) for name, value in before.items() if name == _TRACE)
        request.extensions = after


def _hearing(request: Any, attempt: Attempt) -> Callable[..., Any]:
    theirs = request.extensions.get(_TRACE)

    def hear(event: str, info: Any) -> None:
        if event.endswith(_WRITES):
            attempt.wrote()
        if theirs is not None:
            theirs(event, info)

    return hear


def _hearing_async(request: Any, attempt: Attempt) -> Callable[..., Any]:
    theirs = request.extensions.get(_TRACE)

    async def hear(event: str, info: Any) -> None:
        if event.endswith(_WRITES):
            attempt.wrote()
        if theirs is not None:
            await theirs(event, info)

    return hear


def _watch(response: Any, attempt: Attempt, watched: type[Any]) -> None:
    attempt.answered(response.status_code, response.headers)
    if response.is_stream_consumed:  # a transport that answered with all of it
        attempt.read(_content(response))
        attempt.complete()
    elif response.headers.get("content-encoding", "identity") == "identity":
        response.stream = watched(response.stream, attempt)
    else:
        response.stream = watched(response.stream, _Compressed(attempt))


class _Compressed:
    """Of a compressed answer the wire tells only the end: it is watched where it is decoded."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.decoder: Callable[[], Any] = lambda: None
        """The generator of what comes out of the decoder; an app may drop it, to stop reading."""

    def read(self, data: bytes) -> bytes:
        """The bytes as they are."""
        return data

    def complete(self) -> bytes:
        """The wire is at its end; the decoder may hold some more."""
        self.attempt.received()
        return b""

    def failed(self, error: BaseException) -> None:
        """The wire failed, or is read no further."""
        if isinstance(error, GeneratorExit):
            self.left()
        else:
            self.attempt.failed(error)

    def left(self) -> None:
        """The wire is let go of; where the decoder does that, it goes on, and ends by itself."""
        decoder = self.decoder()
        if not (getattr(decoder, "gi_running", False) or getattr(decoder, "ag_running", False)):
            self.attempt.left()


def _decoding(method: Callable[..., Any], sift: Callable[..., Any]) -> Callable[..., Any]:
    """The `method` of a response that decodes it, sync or async, with its parts sifted."""

    def decoded(self: Any, *args: Any, **kwargs: Any) -> Any:
        parts = method(self, *args, **kwargs)
        compressed = _compressed(self)
        if compressed is not None:
            parts = sift(parts, compressed.attempt)
            compressed.decoder = weakref.ref(parts)
        return parts

    return decoded


def _compressed(response: Any) -> _Compressed | None:
    """What watches `response` where it is decoded, if it is."""
    stream = getattr(response, "stream", None)
    attempt = stream.attempt if isinstance(stream, _Watched) else None
    return attempt if isinstance(attempt, _Compressed) else None


def _sifted(parts: Iterable[bytes], attempt: Attempt | _Compressed) -> Iterator[bytes]:
    try:
        for data in parts:
            kept = attempt.read(data)
            if kept:
                yield kept
        rest = attempt.complete()
        if rest:
            yield rest
    except BaseException as error:
        attempt.failed(error)
        raise


async def _sifted_async(
    stream: AsyncIterable[bytes], attempt: Attempt | _Compressed
) -> AsyncIterator[bytes]:
    parts: Any = stream.__aiter__()
    try:
        async for data in parts:
            kept = attempt.read(data)
            if kept:
                yield kept
    except BaseException as error:
        attempt.failed(error)
        raise
    finally:
        if hasattr(parts, "aclose"):
            await parts.aclose()
    rest = attempt.complete()
    if rest:
        yield rest


class _Watched:
    """The stream of an answer: the same bytes, each when the app asks for it."""

    def __init__(self, stream: Any, attempt: Attempt | _Compressed) -> None:
        self._stream = stream
        self.attempt = attempt

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)  # such as `elapsed` of httpx2


class _WatchedSync(_Watched):
    def __iter__(self) -> Iterator[bytes]:
        return _sifted(self._stream, self.attempt)

    def close(self) -> None:
        """Let go of the connection."""
        try:
            self._stream.close()
        finally:
            self.attempt.left()


class _WatchedAsync(_Watched):
    def __aiter__(self) -> AsyncIterator[bytes]:
        return _sifted_async(self._stream, self.attempt)

    async def aclose(self) -> None:
        """Let go of the connection."""
        try:
            await self._stream.aclose()
        finally:
            self.attempt.left()
