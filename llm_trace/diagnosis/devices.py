"""What accelerators can do at their best: dense peaks and memory bandwidth, each with its source.

The figures are the makers' own for dense matrices, without structured sparsity, accumulated in 32
bits. Real kernels rarely reach them, which is why everything made from them is a floor.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from llm_trace.errors import LlmTraceError

_A100: Final = "NVIDIA A100 Tensor Core GPU datasheet (nvidia-a100-datasheet-us-nvidia-1758950)"
_H100: Final = "NVIDIA H100 Tensor Core GPU datasheet, figures with sparsity halved"
_ADA: Final = "NVIDIA Ada GPU Architecture whitepaper v2.1, appendix A, FP32 accumulate"


class DeviceError(LlmTraceError):
    """A device that nobody knows, or figures that cannot be used."""


class Device(NamedTuple):
    """One accelerator at its best."""

    name: str
    peaks: Mapping[str, float]
    """Dense operations a second by the width that they are done in: `bf16`, `fp8`, `int8`, `fp4`;
    a multiplication and its addition are two."""
    bandwidth: float
    """Memory, bytes a second."""
    memory: float
    """Bytes; 0 where nobody said."""
    source: str
    reported: tuple[str, ...] = ()
    """How drivers name it."""

    def peak(self, width: str) -> float:
        """Operations a second in `width`, or in 16 bits where it has no units for that."""
        return self.peaks.get(width) or self.peaks["bf16"]

    def ridge(self, width: str = "bf16") -> float:
        """Operations a byte from which arithmetic, not memory, is the limit."""
        return self.peak(width) / self.bandwidth

    def seconds_to_read(self, size: float) -> float:
        """How long `size` bytes take to come from memory."""
        return size / self.bandwidth


_T: Final = 1e12
_G: Final = 1e9

DEVICES: Final = (
    Device(
        "A100 PCIe 40GB",
        {"bf16": 312 * _T, "int8": 624 * _T},
        1555 * _G,
        40 * _G,
        f"{_A100}, 40 GB edition",
        ("A100-PCIE-40GB",),
    ),
    Device(
        "A100 SXM 40GB",
        {"bf16": 312 * _T, "int8": 624 * _T},
        1555 * _G,
        40 * _G,
        f"{_A100}, 40 GB edition",
        ("A100-SXM4-40GB",),
    ),
    Device(
        "A100 PCIe 80GB",
        {"bf16": 312 * _T, "int8": 624 * _T},
        1935 * _G,
        80 * _G,
        _A100,
        ("A100 80GB PCIe",),
    ),
    Device(
        "A100 SXM 80GB",
        {"bf16": 312 * _T, "int8": 624 * _T},
        2039 * _G,
        80 * _G,
        _A100,
        ("A100-SXM4-80GB",),
    ),
    Device(
        "H100 SXM",
        {"bf16": 989.4 * _T, "fp8": 1978.9 * _T, "int8": 1978.9 * _T},
        3350 * _G,
        80 * _G,
        _H100,
        ("H100 80GB HBM3",),
    ),
    Device(
        "H100 PCIe",
        {"bf16": 756 * _T, "fp8": 1513 * _T, "int8": 1513 * _T},
        2000 * _G,
        80 * _G,
        _H100,
        ("H100 PCIe",),
    ),
    Device(
        "H100 NVL",
        {"bf16": 835.5 * _T, "fp8": 1670.5 * _T, "int8": 1670.5 * _T},
        3900 * _G,
        94 * _G,
        _H100,
        ("H100 NVL",),
    ),
    Device(
        "H200",
        {"bf16": 989.4 * _T, "fp8": 1978.9 * _T, "int8": 1978.9 * _T},
        4800 * _G,
        141 * _G,
        "NVIDIA H200 Tensor Core GPU datasheet, SXM, figures with sparsity halved",
        ("H200",),
    ),
    Device(
        "B200",
        {"bf16": 2250 * _T, "fp8": 4500 * _T, "int8": 4500 * _T, "fp4": 9000 * _T},
        8000 * _G,
        180 * _G,
        "NVIDIA DGX B200 datasheet, an eighth of the system, figures with sparsity halved",
        ("B200",),
    ),
    Device(
        "L4",
        {"bf16": 121 * _T, "fp8": 242.5 * _T, "int8": 242.5 * _T},
        300 * _G,
        24 * _G,
        "NVIDIA L4 Tensor Core GPU datasheet, figures with sparsity halved",
        ("L4",),
    ),
    Device(
        "L40S",
        {"bf16": 362.05 * _T, "fp8": 733 * _T, "int8": 733 * _T},
        864 * _G,
        48 * _G,
        "NVIDIA L40S datasheet, dense figures",
        ("L40S",),
    ),
    Device(
        "A10",
        {"bf16": 125 * _T, "int8": 250 * _T},
        600 * _G,
        24 * _G,
        "NVIDIA A10 Tensor Core GPU datasheet, dense figures",
        ("A10",),
    ),
    Device(
        "RTX 4090",
        {"bf16": 165.2 * _T, "fp8": 330.3 * _T, "int8": 660.6 * _T},
        1008 * _G,
        24 * _G,
        _ADA,
        ("GeForce RTX 4090",),
    ),
    Device(
        "MI300X",
        {"bf16": 1307.4 * _T, "fp8": 2614.9 * _T, "int8": 2614.9 * _T},
        5300 * _G,
        192 * _G,
        "AMD Instinct MI300X accelerator data sheet, dense figures",
        ("Instinct MI300X", "Instinct MI300X OAM"),
    ),
)

CUSTOM: Final = "TFLOP/s:TB/s"


def find(name: str) -> Device:
    """The device called `name`, by our name or by a driver's, or one made of two figures.

    Args:
        name: `H100 SXM`, `NVIDIA H100 80GB HBM3`, or `312:2.039`: TFLOP/s and TB/s of a device
            that is not in the table.

    Raises:
        DeviceError: It is neither; the message says what is known.
    """
    device = known(name)
    return _of_figures(name) if device is None else device


def known(name: str) -> Device | None:
    """The device of the table that is called `name`, or None."""
    return _BY_NAME.get(_plain(name))


def _plain(name: str) -> str:
    """Case, spaces and the maker's name tell no two devices apart."""
    letters = "".join(c for c in name.lower() if c.isalnum())
    return letters.removeprefix("nvidia").removeprefix("amd")


_BY_NAME: Final = {
    _plain(name): device for device in DEVICES for name in (device.name, *device.reported)
}


def _of_figures(text: str) -> Device:
    operations, colon, bandwidth = text.partition(":")
    try:
        figures = float(operations), float(bandwidth)
    except ValueError:
        raise DeviceError(_unknown(text)) from None
    if not colon or not all(math.isfinite(x) and x > 0 for x in figures):
        raise DeviceError(f"device {text!r} cannot be used: both figures must be above 0.")
    return Device(
        f"{figures[0]:g} TFLOP/s, {figures[1]:g} TB/s",
        {"bf16": figures[0] * _T},
        figures[1] * _T,
        0,
        "figures given by hand",
    )


def _unknown(name: str) -> str:
    plain = _plain(name)
    kinds = [device.name for device in DEVICES if plain and _plain(device.name).startswith(plain)]
    near = [_BY_NAME[key].name for key in difflib.get_close_matches(plain, _BY_NAME, n=1)]
    hint = f"did you mean {' or '.join(kinds or near)}? " if kinds or near else ""
    names = ", ".join(device.name for device in DEVICES)
    return (
        f"device {name[:64]!r} is unknown: {hint}Known are {names}. For another give its dense "
        f"16-bit peak and its memory bandwidth as {CUSTOM}, such as 312:2.039."
    )
