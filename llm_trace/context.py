"""The app's voice: what code inside a request can say about it.

Everything works in sync and async code, in threads that carry the context, in streaming generators,
and outside any request, where it does nothing. Knows the timeline; does not know who listens.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, suppress
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, ParamSpec, TypeVar, cast

from llm_trace import semconv as s
from llm_trace.core import faults
from llm_trace.core.engine_call import EngineCall
from llm_trace.core.interval import Interval
from llm_trace.core.pseudonym import pseudonym
from llm_trace.core.timeline import NO_REQUEST, Timeline

if TYPE_CHECKING:
    from typing_extensions import Self

P = ParamSpec("P")
R = TypeVar("R")

_MAX_NAME: Final = 128
_RESERVED: Final = frozenset(s.PHASES) - {s.RETRIEVAL, s.MODEL_LOAD}

_request: ContextVar[Timeline] = ContextVar("llm_trace_request", default=NO_REQUEST)


class _Place(NamedTuple):
    """Where in a request the code is: inside this phase of that request."""

    timeline: Timeline
    interval: Interval


_call: ContextVar[EngineCall | None] = ContextVar("llm_trace_call", default=None)

_place: ContextVar[_Place | None] = ContextVar("llm_trace_place", default=None)


def enter(timeline: Timeline) -> Token[Timeline]:
    """Make `timeline` the current request of this context; for the middleware."""
    return _request.set(timeline)


def leave(token: Token[Timeline]) -> None:
    """Undo `enter`, in the same context; for the middleware."""
    _request.reset(token)


def current() -> Timeline:
    """The live request, or a handle that does nothing outside one."""
    return _request.get()


def _parent(timeline: Timeline) -> int:
    """The span id of the phase we are in; a phase of another request is nobody's parent."""
    place = _place.get()
    return place.interval.span_id if place and place.timeline is timeline else 0


def place() -> int:
    """The span id of the phase that we are in; 0 outside of any."""
    return _parent(current())


def admitted() -> None:
    """Say that the app accepted the request: auth, limits and validation are done."""
    current().admit()


def annotate(**attributes: object) -> None:
    """Put `attributes` on the request's root span; on equal keys the last wins."""
    current().annotate(attributes)


def user(identifier: object) -> None:
    """Say whose request it is: only a hash of it by the setting `user_key` is kept, on the root.

    Args:
        identifier: Whatever names the user in the app, such as a number or a UUID: it is taken as
            text. None is nobody. Without a key nothing is kept of it.
    """
    timeline = current()
    key = timeline.settings.user_key if timeline.settings is not None else None
    if identifier is None:
        return
    if key is not None:
        timeline.annotate({s.USER_PSEUDONYM: pseudonym(str(identifier), key)})
    elif not timeline.closed:
        faults.drop("user_without_key")


def headers() -> dict[str, str]:
    """Headers to send to an upstream, so that its spans become children of where we are now."""
    return current().headers(place())


def engine_call(operation: str, model: str, **attributes: object) -> EngineCall:
    """A context manager around one call of an engine; entering it is the hand-off.

    Args:
        operation: `gen_ai.operation.name`, such as `chat` or `text_completion`.
        model: The model asked for.
        **attributes: More attributes for the call's span.
    """
    timeline = current()
    call = _OpenCall(timeline, operation, model, attributes)
    call.parent_span_id = place()
    return call


class _OpenCall(EngineCall):
    """A call that the app opens by hand: what is sent to an engine inside of it is that call."""

    __slots__ = ("_tokens",)

    def __init__(
        self, timeline: Timeline, operation: str, model: str, attributes: dict[str, object]
    ) -> None:
        super().__init__(timeline, operation, model, attributes=attributes)
        self._tokens: list[Token[EngineCall | None]] = []
        """One for each entry that is not left yet."""

    def __enter__(self) -> Self:
        self._tokens.append(_call.set(self))
        super().__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end(error)
        if self._tokens:
            _reset(self._tokens.pop())


def open_call() -> EngineCall | None:
    """The call that the app has opened around where we are, if it is one of this request."""
    call = _call.get()
    open_here = call is not None and not call.returned and call.timeline is current()
    return call if open_here else None


def bind(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, to be run in another thread as part of this request.

    `asyncio.to_thread` carries the context by itself; `loop.run_in_executor` and thread pools
    need this.
    """
    context = contextvars.copy_context()

    @functools.wraps(function)
    def bound(*args: P.args, **kwargs: P.kwargs) -> R:
        return context.copy().run(function, *args, **kwargs)

    return bound


class _Entered(NamedTuple):
    """What one entry into a phase must undo at its exit."""

    place: _Place
    token: Token[_Place | None]
    active: object


class Phase:
    """One named stretch of app time: `with`, `async with`, or a decorator.

    A decorator times every run apart. An object entered again, even by another request while it is
    open, is a new stretch each time; `set` speaks of the one entered last.
    """

    __slots__ = ("_entered", "_given", "_name", "attributes")

    def __init__(self, name: str, attributes: dict[str, object]) -> None:
        self._name = name
        self._given = self.attributes = attributes
        self._entered: list[_Entered] = []

    def set(self, **attributes: object) -> None:
        """Add attributes to the phase's span, such as how many documents were found."""
        self.attributes.update(attributes)

    def __enter__(self) -> Self:
        timeline = current()
        self.attributes = dict(self._given)
        interval = timeline.open_interval(self._name, self.attributes, _parent(timeline))
        place = _Place(timeline, interval)
        token = _place.set(place)
        active = timeline.activate(interval.span_id)
        self._entered.append(_Entered(place, token, active))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._entered:
            return
        (timeline, interval), token, active = self._entered.pop(self._mine())
        timeline.close_interval(interval, error)
        timeline.deactivate(active)
        _reset(token)

    def _mine(self) -> int:
        """Which entry an exit ends: the one of this context, else the last.

        Another context closes it when a generator is finished elsewhere than it was begun.
        """
        here = _place.get()
        return next((n for n, entry in enumerate(self._entered) if entry.place is here), -1)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, trace)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Time every run of `function`: plain, coroutine, generator or async generator."""
        for is_kind, wrap in _WRAPPERS:
            if is_kind(function):
                return cast("Callable[P, R]", functools.wraps(function)(wrap(self, function)))
        return functools.wraps(function)(_wrap_function(self, function))

    def _again(self) -> Phase:
        return Phase(self._name, self._given)


def _reset(token: Token[Any]) -> None:
    """Reset `token`, or leave it: a generator may be closed from another context."""
    with suppress(ValueError):
        token.var.reset(token)


def _wrap_function(phase: Phase, function: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        with phase._again():  # noqa: SLF001 - the same concept
            return function(*args, **kwargs)

    return timed


def _wrap_coroutine(phase: Phase, function: Callable[..., Any]) -> Callable[..., Any]:
    async def timed(*args: Any, **kwargs: Any) -> Any:
        with phase._again():  # noqa: SLF001
            return await function(*args, **kwargs)

    return timed


def _wrap_generator(phase: Phase, function: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        with phase._again():  # noqa: SLF001
            return (yield from function(*args, **kwargs))

    return timed


def _wrap_async_generator(phase: Phase, function: Callable[..., Any]) -> Callable[..., Any]:
    async def timed(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        with phase._again():  # noqa: SLF001
            async with aclosing(function(*args, **kwargs)) as items:
                step = items.__anext__()
                while True:
                    try:
                        item = await step
                    except StopAsyncIteration:
                        return
                    try:
                        step = items.asend((yield item))
                    except GeneratorExit:
                        raise
                    except BaseException as error:  # noqa: BLE001 - what is thrown in is its own
                        step = items.athrow(error)

    return timed


_WRAPPERS: Final = (
    (inspect.isasyncgenfunction, _wrap_async_generator),
    (inspect.iscoroutinefunction, _wrap_coroutine),
    (inspect.isgeneratorfunction, _wrap_generator),
)


def phase(name: str, **attributes: object) -> Phase:
    """Name a stretch of app time in the current request.

    Args:
        name: Any name that is not one of the ledger's own, such as `rerank`; metrics label it
            only when the setting `phases` declares it. `retrieval` and `model_load` are the
            ledger's and may be used. Cut at 128 characters.
        **attributes: Attributes of its span.
    """
    if name in _RESERVED:
        advice = f"phase name {name!r} is measured by llm_trace itself: choose another"
        faults.contain("phase", ValueError(advice))
        name = s.OTHER
    # It names spans and keys as it is, so it is bounded and encodable from the start.
    return Phase(name[:_MAX_NAME].encode("utf-8", "replace").decode(), attributes)


def retrieval(
    data_source: str | None = None,
    documents: int | None = None,
    top_k: int | None = None,
    **attributes: object,
) -> Phase:
    """The phase in which documents are fetched.

    Args:
        data_source: Which index or store; `gen_ai.data_source.id`.
        documents: How many were found; usually known only inside: `set(documents=n)`.
        top_k: How many were asked for.
        **attributes: More attributes of its span.
    """
    given = {"data_source": data_source, "documents": documents, "top_k": top_k, **attributes}
    return Phase(s.RETRIEVAL, {k: v for k, v in given.items() if v is not None})
