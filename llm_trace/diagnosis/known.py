"""What is known of the engine, from settings or from the engine itself; asked for each record."""

from __future__ import annotations

from llm_trace.core import engines, faults
from llm_trace.core.engines import Engine
from llm_trace.core.record import RequestRecord
from llm_trace.core.verdict import Verdict
from llm_trace.diagnosis import catalogue, devices
from llm_trace.diagnosis.devices import Device
from llm_trace.diagnosis.floors import UNKNOWN, Floors
from llm_trace.diagnosis.precision import precision_of
from llm_trace.diagnosis.roofline import Roofline
from llm_trace.diagnosis.shape import shape_of
from llm_trace.diagnosis.verdict import judge
from llm_trace.errors import LlmTraceError
from llm_trace.settings import Settings


def roofline_of(device: str, model: str, tensor_parallel: int = 1) -> Roofline:
    """The roofline of a model and a device, each by the name that a setting gives.

    Raises:
        LlmTraceError: One of them is not known.
    """
    config = catalogue.find(model).config
    shape, precision = shape_of(config), precision_of(config)
    return Roofline(shape, precision, devices.find(device), tensor_parallel)


def floors_of(engine: Engine, device: Device | None = None) -> Floors:
    """What an engine said of itself; a model that cannot be counted has no roofline.

    Args:
        engine: What it said.
        device: What it runs on, where a setting says so.
    """
    device = device or devices.known(engine.device or "")
    return Floors(
        _roofline(engine, device), engine.slots, engine.step_tokens, engine.prefix_caching
    )


def _roofline(engine: Engine, device: Device | None) -> Roofline | None:
    if device is None or engine.model_config is None:
        return None
    config = engine.model_config
    try:
        precision = precision_of(config, cache=engine.cache_type)
        return Roofline(shape_of(config), precision, device, engine.tensor_parallel)
    except LlmTraceError as fault:
        faults.log().info("llm_trace: this engine has no roofline: %s", fault)
        return None


class Judging:
    """Judges records, each once, whoever asks; the last verdict is kept for the next observer.

    Args:
        settings: `device`, `model_config` and `tensor_parallel`; they beat what an engine says.

    Raises:
        LlmTraceError: A setting names no known device or model.
    """

    def __init__(self, settings: Settings) -> None:
        self._device = devices.find(settings.device) if settings.device else None
        self._given: Roofline | None = None
        if settings.device and settings.model_config:
            self._given = roofline_of(
                settings.device, settings.model_config, settings.tensor_parallel
            )
        self._engine: Engine | None = None
        self._floors = Floors(self._given)
        self._last: tuple[RequestRecord | None, Verdict | None] = (None, None)

    def __call__(self, record: RequestRecord) -> Verdict | None:
        """The verdict on `record`; a fault of ours costs it the verdict and nothing else."""
        known, verdict = self._last
        if known is not record:
            verdict = self._judged(record)
            self._last = record, verdict
        return verdict

    def _judged(self, record: RequestRecord) -> Verdict | None:
        try:
            return judge(record, self._known())
        except Exception as error:  # noqa: BLE001 - spans and metrics must not wait for a verdict
            faults.contain("verdict", error)
            return None

    def _known(self) -> Floors:
        """Made anew when an engine has described itself."""
        engine = engines.described[-1] if engines.described else None
        if engine is not self._engine:
            self._engine = engine
            said = floors_of(engine, self._device) if engine is not None else UNKNOWN
            self._floors = said if self._given is None else said._replace(roofline=self._given)
        return self._floors
