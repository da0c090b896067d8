"""What is read of vLLM's configuration, and what is left out where a version lacks it."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from llm_trace.core.engines import Engine
from llm_trace_vllm.description import describe


class Config:
    """The model's own configuration."""

    def __init__(self, **fields):
        self.fields = fields

    def to_dict(self):
        """As transformers gives it."""
        return self.fields


def configured(quantization=None, **fields):
    """vLLM's configuration, as far as it is read."""
    return SimpleNamespace(
        model_config=SimpleNamespace(
            hf_config=Config(hidden_size=64, **fields),
            dtype="torch.bfloat16",
            quantization=quantization,
        ),
        parallel_config=SimpleNamespace(tensor_parallel_size=2),
        cache_config=SimpleNamespace(cache_dtype="fp8", enable_prefix_caching=True),
        scheduler_config=SimpleNamespace(max_num_seqs=8, max_num_batched_tokens=512),
    )


@pytest.fixture
def platform(monkeypatch):
    """A platform that knows its device."""
    module = ModuleType("vllm.platforms")
    module.current_platform = SimpleNamespace(get_device_name=lambda: "NVIDIA L4")
    monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
    monkeypatch.setitem(sys.modules, "vllm.platforms", module)
    return module.current_platform


@pytest.mark.usefixtures("platform")
def test_a_configuration_is_read_whole():
    """Model, device, parallelism, cache, slots, step and prefix caching."""
    fields = {"hidden_size": 64, "torch_dtype": "torch.bfloat16"}

    expected = Engine(fields, "NVIDIA L4", 2, "fp8", 8, 512, prefix_caching=True)
    assert expected == describe(configured())


@pytest.mark.usefixtures("platform")
def test_quantisation_that_was_asked_for_is_in_the_model():
    """What the checkpoint says itself is more exact and stays."""
    asked = describe(configured("fp8")).model_config
    own = describe(configured("awq", quantization_config={"quant_method": "awq", "bits": 8}))

    assert asked["quantization_config"] == {"quant_method": "fp8"}
    assert own.model_config["quantization_config"]["bits"] == 8


def test_a_version_without_all_that_says_less(platform):
    """No fact of another version ends a server."""

    def unknown():
        raise RuntimeError("no driver")

    platform.get_device_name = unknown

    assert Engine() == describe(SimpleNamespace())
