"""The composition root: settings, tracer, metrics and middleware become one.

The only module that knows all parts; every part can be used and tested without it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from llm_trace.asgi.lifespan import refusing
from llm_trace.asgi.middleware import LedgerMiddleware
from llm_trace.core import faults
from llm_trace.core.dispatch import Dispatch, Observer
from llm_trace.errors import LlmTraceError, SettingsError
from llm_trace.settings import Settings
from llm_trace.upstream import switch_on

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from llm_trace.asgi.types import ASGIApp
    from llm_trace.core.record import RequestRecord
    from llm_trace.core.verdict import Judge
    from llm_trace.observers.exports import Exports
    from llm_trace.observers.retrievals import Retrievals
    from llm_trace.observers.sink import SpanSink

App = TypeVar("App", bound="Starlette")
T = TypeVar("T")
Expect: TypeAlias = "Callable[[RequestRecord], float | None]"

MAX_WRAPPERS: Final = 4

_HEARD: Final = "_llm_trace_heard"

_MARK: Final = "_llm_trace_instrumented"

_dispatches: dict[str, Dispatch] = {}

_exported_to: set[str] = set()
"""Where the metrics of this process go already: one set of numbers is sent to a place once."""


def compose(settings: Settings) -> Dispatch:
    """The dispatch for `settings`: one a process, so that two apps share exporters and metrics.

    Raises:
        SettingsError: The OTLP variables cannot work.
    """
    if settings.upstream:
        switch_on()
    key = repr(settings)
    if key not in _dispatches:
        _dispatches[key] = _compose(settings)
    return _dispatches[key]


def _compose(settings: Settings) -> Dispatch:
    from llm_trace.diagnosis.known import Judging  # noqa: PLC0415 - lazy: import stays quick
    from llm_trace.observers.spans import SpanObserver  # noqa: PLC0415
    from llm_trace.observers.tracer import OtelTracer  # noqa: PLC0415

    judge = _settled(Judging, settings)
    expect = _expectation(settings.benchmark)
    metrics = _metrics(settings, expect, judge)
    exports = _exports(settings, metrics.collect)
    spans = SpanObserver(
        exports.sink,
        limit=settings.max_attribute_bytes,
        latency=settings.latency_attributes,
        expect=expect,
        judge=judge,
    )
    observers: list[Observer] = [spans, *metrics.observers]
    if settings.slow_ttft is not None:
        from llm_trace.observers.slow_log import SlowLog  # noqa: PLC0415

        observers.append(SlowLog(settings.slow_ttft, judge))
    if settings.flight_recorder:
        from llm_trace.observers.flight import FlightRecorder  # noqa: PLC0415

        service = os.environ.get("OTEL_SERVICE_NAME", "")
        observers.append(FlightRecorder(settings.flight_recorder, spans, service))

    def start() -> None:
        exports.start()
        metrics.start()

    find_sink, sample = _tail(settings, exports.sink)
    tracer = OtelTracer(_hearing(find_sink, settings.retrieval_stores))
    dispatch = Dispatch(tracer, observers, exports.flush, metrics.on_lag, start, sample)
    metrics.watch(dispatch)
    return dispatch


class _Metrics(NamedTuple):
    """What keeps the numbers; by default nothing does."""

    observers: Sequence[Observer] = ()
    collect: Callable[[], Iterable[Any]] = tuple
    on_lag: Callable[[int], None] | None = None
    watch: Callable[[Dispatch], None] = lambda _dispatch: None
    start: Callable[[], None] = lambda: None


def _metrics(settings: Settings, expect: Expect | None, judge: Judge) -> _Metrics:
    """The metrics of this process; none where prometheus_client would fail at each of them."""
    from llm_trace.observers import workers  # noqa: PLC0415

    if (fault := workers.fault()) is not None:
        faults.log().warning("llm_trace: there is no page of metrics: %s", fault)
    if workers.is_closed():
        return _Metrics()
    from llm_trace.observers.metrics import instruments  # noqa: PLC0415
    from llm_trace.observers.recorder import MetricsObserver  # noqa: PLC0415
    from llm_trace.observers.verdicts import VerdictObserver  # noqa: PLC0415

    accumulators = instruments()
    recorder = MetricsObserver(
        accumulators,
        served_models=tuple(settings.served_models),
        phases=tuple(settings.phases),
        expect=expect,
    )
    verdicts = VerdictObserver(accumulators, judge, recorder.base)
    return _Metrics(
        (recorder, verdicts),
        accumulators.collect,
        recorder.lagged,
        accumulators.watch,
        accumulators.start,
    )


def _expectation(benchmark: str | None) -> Expect | None:
    """What a benchmark lets us expect of a request; None without one."""
    if benchmark is None:
        return None
    from llm_trace.core import expected  # noqa: PLC0415

    try:
        return expected.read(benchmark).of
    except ValueError as fault:
        raise SettingsError(f"setting benchmark={benchmark!r} cannot be used: {fault}.") from None


def _settled(make: Callable[[Settings], T], settings: Settings) -> T:
    """What `make` makes of the settings; a name that nobody knows is a fault of theirs."""
    try:
        return make(settings)
    except LlmTraceError as fault:
        raise SettingsError(f"settings device and model_config cannot be used: {fault}") from None


def _exports(settings: Settings, families: Callable[[], Iterable[Any]]) -> Exports:
    """Where spans and metrics go; variables are checked now, exporters are made in each process."""
    from llm_trace.observers.endpoint import resolve  # noqa: PLC0415
    from llm_trace.observers.exports import Exports, Made  # noqa: PLC0415

    given = {"endpoint": settings.otlp_endpoint, "protocol": settings.otlp_protocol}
    apps_own = settings.otlp_endpoint is None and _global_sink() is not None
    # Where the app has a provider of its own, spans belong there, whatever it exports to.
    traces = None if apps_own else resolve("traces", os.environ, **given)
    metrics = resolve("metrics", os.environ, **given)
    if metrics is not None and metrics.url in _exported_to:
        metrics = None
    if traces is None and metrics is None:
        return Exports(lambda: Made(_global_sink, _nothing))
    from llm_trace.observers.providers import Pipeline, load  # noqa: PLC0415 - only where used

    for endpoint in filter(None, (traces, metrics)):
        load(endpoint)
    if metrics is not None:
        _exported_to.add(metrics.url)

    def make() -> Made:
        pipeline = Pipeline(settings.shutdown_timeout)
        if metrics is not None:
            pipeline.add_metrics(metrics, families)
        if traces is None:
            return Made(_global_sink, pipeline.flush)
        sink = pipeline.add_spans(traces)
        return Made(lambda: sink, pipeline.flush)

    return Exports(make)


def _nothing() -> None:
    """There is nothing to flush."""


@lru_cache(maxsize=1)
def _sink_of(provider: object) -> SpanSink | None:
    from llm_trace.observers.providers import sink_of  # noqa: PLC0415

    return sink_of(provider)


def _global_sink() -> SpanSink | None:
    """The app's own provider as a sink, whenever it is set; None until then."""
    provider = _apps_provider()
    return None if provider is None else _sink_of(provider)


def _apps_provider() -> object | None:
    """What the app has set as its provider by now, a proxy included; None without any SDK."""
    if "opentelemetry.sdk.trace" not in sys.modules:
        return None
    from opentelemetry.trace import get_tracer_provider  # noqa: PLC0415

    return _unwrapped(get_tracer_provider())


def _tail(
    settings: Settings, find_sink: Callable[[], SpanSink | None]
) -> tuple[Callable[[], SpanSink | None], Callable[[RequestRecord], RequestRecord] | None]:
    """`find_sink` as tail sampling needs it, and who decides; nobody where all is kept."""
    if settings.tail_share == 1:
        return find_sink, None
    from llm_trace.observers.held import Held, HoldingSink  # noqa: PLC0415
    from llm_trace.observers.tail import TailSampler  # noqa: PLC0415

    held = Held()
    last: tuple[SpanSink | None, SpanSink | None] = (None, None)

    def find() -> SpanSink | None:
        nonlocal last
        sink = find_sink()
        if sink is not last[0]:
            last = (sink, sink)
            if sink is _global_sink() and sink is not None:
                held.gate(_apps_provider())
                last = (sink, HoldingSink(sink, held))
        return last[1]

    def is_whole() -> bool:
        sink = find()
        return sink is not None and sink.takes_all

    sampler = TailSampler(
        settings.tail_share, settings.slow_ttft, settle=held.settle, is_whole=is_whole
    )
    return find, sampler


def _hearing(
    find_sink: Callable[[], SpanSink | None], stores: tuple[str, ...]
) -> Callable[[], SpanSink | None]:
    """`find_sink`, and with it an ear on the app's provider, whenever it is set: for retrievals."""
    from llm_trace.observers.retrievals import Retrievals  # noqa: PLC0415 - lazy, as above

    retrievals = Retrievals(stores)
    last: object | None = None

    def find() -> SpanSink | None:
        nonlocal last
        provider = _apps_provider()
        if provider is not last:
            last = provider
            _hear(provider, retrievals)
        return find_sink()

    return find


def _hear(provider: object, retrievals: Retrievals) -> None:
    """Let `provider` tell of its spans; once, however many apps of the process are traced."""
    if provider is None or getattr(provider, _HEARD, False):
        return
    from llm_trace.observers.providers import listen  # noqa: PLC0415 - the SDK is there by now

    listen(provider, retrievals.started, retrievals.ended)
    with suppress(AttributeError):  # a proxy may be slotted, and is no SDK provider
        setattr(provider, _HEARD, True)


def _unwrapped(provider: Any) -> object:
    """The SDK's provider inside another's, as Logfire has it: that one is set anew now and then."""
    for _ in range(MAX_WRAPPERS):
        if hasattr(provider, "sampler") or not hasattr(provider, "provider"):
            break
        provider = provider.provider
    return provider


class TraceMiddleware(LedgerMiddleware):
    """The ASGI middleware with everything set up from the environment.

    For `app.add_middleware(TraceMiddleware)`, for wrapping an app by hand, and for
    `vllm serve MODEL --middleware llm_trace.TraceMiddleware`.

    Args:
        app: The ASGI app.
        settings: Checked settings; None reads `LLM_TRACE_*`.

    Raises:
        SettingsError: A setting or an `OTEL_*` variable cannot be used. Where a server builds its
            middlewares while it starts, it is told to fail instead.
    """

    def __init__(self, app: ASGIApp, settings: Settings | None = None) -> None:
        try:
            settings = Settings.from_env() if settings is None else settings
            dispatch = compose(settings) if settings.enabled else Dispatch()
        except SettingsError as fault:
            if not _is_served():
                raise
            app = refusing(f"llm_trace: {fault}", app)
            settings, dispatch = Settings(enabled=False), Dispatch()
        super().__init__(
            _with_flights(app, settings, dispatch), settings=settings, dispatch=dispatch
        )


def _with_flights(app: ASGIApp, settings: Settings, dispatch: Dispatch) -> ASGIApp:
    """`app`, and the page of the flight recorder where there is one."""
    if not settings.flight_recorder:
        return app
    from llm_trace.asgi.page import with_page  # noqa: PLC0415 - rarely on
    from llm_trace.observers.flight import FlightRecorder  # noqa: PLC0415

    for observer in dispatch.observers:
        if isinstance(observer, FlightRecorder):
            return with_page(app, settings.flight_recorder_path, observer.show)
    return app


def _is_served() -> bool:
    """Whether a server runs already: it takes what is raised now for an app without a lifespan."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def instrument(app: App, **settings: Any) -> App:
    """Trace `app`: the middleware outside all others, exporters from the environment, /metrics.

    Idempotent; with the setting `enabled` false the app is returned as it came.

    Args:
        app: A Starlette or FastAPI app.
        **settings: Any setting of `Settings`; they beat `LLM_TRACE_*`.

    Raises:
        SettingsError: An unknown setting, a value that cannot be used, or no Starlette app.
    """
    checked = Settings.from_env(**settings)
    if not (hasattr(app, "build_middleware_stack") and hasattr(app, "state")):
        raise SettingsError(
            f"instrument() needs a Starlette or FastAPI app, not {type(app).__name__}: wrap other "
            "ASGI apps by hand, app = llm_trace.TraceMiddleware(app)."
        )
    if not checked.enabled or getattr(app.state, _MARK, False):
        return app
    compose(checked)  # bad variables fail here, at start, before the app is touched
    setattr(app.state, _MARK, True)
    if checked.metrics_path:
        from llm_trace.observers.exposition import add_route  # noqa: PLC0415

        add_route(app, checked.metrics_path)
    _wrap(app, checked)
    return app


def _wrap(app: Starlette, settings: Settings) -> None:
    """Put the middleware around the whole stack, whenever it is or was built."""
    from llm_trace.asgi.stack import traced  # noqa: PLC0415 - Starlette, only where it is there

    def trace(inner: ASGIApp) -> ASGIApp:
        return TraceMiddleware(inner, settings)

    if app.middleware_stack is not None:
        app.middleware_stack = traced(app.middleware_stack, trace)
    build = app.build_middleware_stack
    app.build_middleware_stack = lambda: traced(build(), trace)  # type: ignore[method-assign]
