"""What vLLM's configuration says of the engine: its model, its device, its limits.

Read where the statistics logger is made, in the API server's process, so nothing here may touch the
device: the platform answers from the driver.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from llm_trace.core import faults
from llm_trace.core.engines import Engine


def describe(vllm_config: Any) -> Engine:
    """The engine that `vllm_config` makes; what a version does not say is None."""
    read = {name: _try(name, fact, vllm_config) for name, fact in _FACTS.items()}
    return Engine(**{name: value for name, value in read.items() if value is not None})


def _try(name: str, fact: Callable[[Any], Any], vllm_config: Any) -> Any:
    try:
        return fact(vllm_config)
    except (AttributeError, ImportError, RuntimeError, TypeError, ValueError) as error:
        faults.log().info("llm_trace: this vLLM does not say its %s: %s", name, error)
        return None


def _model(vllm_config: Any) -> dict[str, Any]:
    """The fields of its `config.json`, in the precision that it is served in."""
    model = vllm_config.model_config
    fields = dict(model.hf_config.to_dict())
    fields["torch_dtype"] = str(model.dtype)
    if model.quantization and not fields.get("quantization_config"):
        fields["quantization_config"] = {"quant_method": str(model.quantization)}
    return fields


def _device(_vllm_config: Any) -> str:
    from vllm.platforms import current_platform  # noqa: PLC0415 - chosen once vLLM runs

    return str(current_platform.get_device_name())


_FACTS: Final[dict[str, Callable[[Any], Any]]] = {
    "model_config": _model,
    "device": _device,
    "tensor_parallel": lambda c: int(c.parallel_config.tensor_parallel_size),
    "cache_type": lambda c: str(c.cache_config.cache_dtype),
    "slots": lambda c: int(c.scheduler_config.max_num_seqs),
    "step_tokens": lambda c: int(c.scheduler_config.max_num_batched_tokens),
    "prefix_caching": lambda c: bool(c.cache_config.enable_prefix_caching),
}
