"""What is known of the engine: from settings, from the engine, and which of them wins."""

from __future__ import annotations

from collections import Counter

import pytest
from judged_records import told

from llm_trace.core import engines, faults
from llm_trace.core.engines import Engine
from llm_trace.core.usage import Usage
from llm_trace.diagnosis import catalogue, known
from llm_trace.diagnosis.known import Judging, floors_of
from llm_trace.errors import LlmTraceError
from llm_trace.settings import Settings

LLAMA = catalogue.find("Llama-3.1-8B").config
H100 = Engine(LLAMA, "NVIDIA H100 80GB HBM3", 1, "fp8", 256, 8192, prefix_caching=True)
SLOW = {
    "first_token_engine": 404,
    "first_token_sent": 406,
    "last_token_sent": 606,
    "finished": 607,
}
LONG = told(usage=Usage(3000, 21, 0), **SLOW)


@pytest.fixture(autouse=True)
def _no_engine(monkeypatch):
    monkeypatch.setattr(faults, "internal", Counter())
    engines.described.clear()
    yield
    engines.described.clear()


def test_settings_give_floors():
    """A device and a model, by name."""
    judge = Judging(Settings(device="A100 SXM 80GB", model_config="Llama-3.1-8B"))

    assert judge(LONG).ratios.prefill == pytest.approx(2.8, abs=0.1)


def test_an_engine_that_describes_itself_gives_floors():
    """It may do so after the first request."""
    judge = Judging(Settings())
    assert judge(LONG).ratios.prefill is None

    engines.described.append(H100)
    again = told(usage=Usage(3000, 21, 0), **SLOW)
    assert judge(again).ratios.prefill > 3


def test_settings_beat_the_engine_for_the_device_and_keep_its_slots():
    """What is said in code wins; what only the engine knows is kept."""
    engines.described.append(H100)
    judge = Judging(Settings(device="A100 SXM 80GB", model_config="Llama-3.1-8B"))
    judge(LONG)

    assert judge._known().roofline.device.name == "A100 SXM 80GB"
    assert judge._known().slots == 256


def test_a_device_of_the_settings_completes_an_engine_that_knows_its_model():
    """As where a driver reports a name that is not in the table."""
    engines.described.append(H100._replace(device="cpu"))
    judge = Judging(Settings(device="0.13:0.02"))

    assert judge(LONG).ratios.prefill < 1


@pytest.mark.parametrize(
    "engine",
    [
        Engine(),
        H100._replace(device="CPU"),
        H100._replace(model_config=None),
        H100._replace(model_config={"model_type": "mamba"}),
        H100._replace(cache_type="int3"),
    ],
)
def test_an_engine_that_cannot_be_counted_has_no_roofline(engine):
    """Its slots still count."""
    assert floors_of(engine).roofline is None
    assert floors_of(engine).slots == engine.slots


def test_a_record_is_judged_once(monkeypatch):
    """Observers that ask for the same record get the same verdict."""
    judge = Judging(Settings())

    assert judge(LONG) is judge(LONG)


def test_a_fault_costs_the_verdict_and_nothing_else(monkeypatch):
    """The span is made and the request is counted without one."""
    monkeypatch.setattr(known, "judge", lambda *_: 1 / 0)
    judge = Judging(Settings())

    with faults.production():
        assert judge(LONG) is None
    assert faults.internal["verdict"] == 1


@pytest.mark.parametrize(("device", "model"), [("H1", "Llama-3.1-8B"), ("L4", "nothing")])
def test_a_name_that_nobody_knows_is_refused(device, model):
    """At start, not on a request."""
    with pytest.raises(LlmTraceError):
        Judging(Settings(device=device, model_config=model))
