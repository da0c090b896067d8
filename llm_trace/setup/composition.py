"""The dispatch: who hears of finished requests, made from the settings once a process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from llm_trace.core import faults
from llm_trace.core.dispatch import Dispatch, Observer
from llm_trace.errors import LlmTraceError, SettingsError
from llm_trace.settings import Settings
from llm_trace.setup.exporters import exports_of
from llm_trace.setup.listening import hearing
from llm_trace.setup.tail import tail_of
from llm_trace.upstream import switch_on

if TYPE_CHECKING:
    from llm_trace.core.record import RequestRecord
    from llm_trace.core.verdict import Judge

T = TypeVar("T")
Expect: TypeAlias = "Callable[[RequestRecord], float | None]"

_dispatches: dict[str, Dispatch] = {}


def compose(settings: Settings) -> Dispatch:
    """The dispatch for `settings`: one a process, so that two apps share exporters and metrics.

    Raises:
        SettingsError: The OTLP variables cannot work, or a library refuses one.
    """
    if settings.upstream:
        switch_on()
    key = repr(settings)
    if key not in _dispatches:
        try:
            _dispatches[key] = _compose(settings)
        except SettingsError:
            raise
        except ValueError as fault:  # of OpenTelemetry, which reads variables when imported
            raise SettingsError(f"llm_trace cannot be set up: {fault}") from fault
    return _dispatches[key]


def _compose(settings: Settings) -> Dispatch:
    from llm_trace.diagnosis.known import Judging  # noqa: PLC0415 - lazy: import stays quick
    from llm_trace.observers.spans import SpanObserver  # noqa: PLC0415
    from llm_trace.observers.tracer import OtelTracer  # noqa: PLC0415

    judge = _settled(Judging, settings)
    expect = _expectation(settings.benchmark)
    metrics = _metrics(settings, expect, judge)
    exports = exports_of(settings, metrics.collect)
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
        from llm_trace.observers.sdk.origin import service_name  # noqa: PLC0415

        observers.append(FlightRecorder(settings.flight_recorder, spans, service_name()))

    def start() -> None:
        exports.start()
        metrics.start()

    find_sink, sample = tail_of(settings, exports.sink)
    tracer = OtelTracer(hearing(find_sink, settings.retrieval_stores))
    dispatch = Dispatch(tracer, observers, exports.flush, metrics.on_lag, start, sample)
    metrics.watch(dispatch)
    return dispatch


def verify(settings: Settings) -> None:
    """Read what the settings name, as it is read at start: device, model and benchmark.

    Raises:
        SettingsError: One of them cannot be used.
    """
    from llm_trace.diagnosis.known import Judging  # noqa: PLC0415 - lazy, as above

    _settled(Judging, settings)
    _expectation(settings.benchmark)


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
