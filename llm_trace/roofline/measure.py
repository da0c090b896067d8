"""Measures this machine's processor: a large product of matrices, and a large sum from memory."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any, Final

from llm_trace.core.clock import SYSTEM
from llm_trace.diagnosis.devices import Device
from llm_trace.errors import MissingExtraError

_SIDE: Final = 2048
_NUMBERS: Final = 1 << 26
"""Numbers of four bytes: far more than any cache holds."""
_TIMES: Final = 5


def measure_cpu() -> Device:
    """The processor as a device: the best of a few runs, on as many threads as the library takes.

    With PyTorch the product is in bfloat16, as vLLM computes on processors; else in float32.

    Raises:
        MissingExtraError: Neither PyTorch nor NumPy is there.
    """
    if importlib.util.find_spec("torch") is not None:
        return _measure_torch()
    if importlib.util.find_spec("numpy") is not None:
        return _measure_numpy()
    raise MissingExtraError("measuring the processor needs NumPy: pip install numpy")


def _measure_torch() -> Device:
    import torch  # noqa: PLC0415 - large, and only here

    a = torch.rand(_SIDE, _SIDE).to(torch.bfloat16)
    numbers = torch.ones(_NUMBERS, dtype=torch.float32)
    return _device(lambda: a @ a, numbers.sum, f"PyTorch {torch.__version__} in bfloat16")


def _measure_numpy() -> Device:
    import numpy as np  # noqa: PLC0415 - only here

    a = np.ones((_SIDE, _SIDE), dtype=np.float32)
    numbers = np.ones(_NUMBERS, dtype=np.float32)
    return _device(lambda: a @ a, numbers.sum, f"NumPy {np.__version__} in float32")


def _device(multiply: Callable[[], Any], add: Callable[[], Any], with_what: str) -> Device:
    return Device(
        "this CPU",
        {"bf16": 2 * _SIDE**3 / _best(multiply)},
        4 * _NUMBERS / _best(add),
        0,
        f"measured here now, {with_what}",
    )


def _best(work: Callable[[], Any]) -> float:
    """The least seconds of a few runs, after one to warm up."""
    work()
    took = []
    for _ in range(_TIMES):
        began = SYSTEM.monotonic_ns()
        work()
        took.append(SYSTEM.monotonic_ns() - began)
    return max(1, min(took)) / 1e9
