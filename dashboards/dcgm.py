"""NVIDIA's DCGM exporter: the series that boards and alerts read, and what their values mean.

From the exporter's documentation and its users' reports: written without a GPU at hand. Where the
type that the exporter prints and the value disagree, the value is followed.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

HOST: Final = "Hostname"
GPU: Final = "gpu"
POD: Final = "pod"
EXPORTED_POD: Final = "exported_pod"
"""What Prometheus makes of `pod` when the scrape target has a pod of its own."""

NO_GAUGE: Final = 2**47
"""A gauge without a value reads this or more: DCGM has blanks for floats from here on, and for
integers from 9223372036854775792 on (9223372036854775794: not supported)."""

NO_COUNTER: Final = 9_200_000_000_000_000_000
"""A counter without a value reads this or more; one of nanoseconds may well pass `NO_GAUGE`."""


class Series(NamedTuple):
    """One series, as a line of the exporter's counters file has it."""

    name: str
    kind: Literal["gauge", "counter"]
    """The exporter's word for it."""
    help: str


CLOCK: Final = Series("DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz).")
TEMPERATURE: Final = Series("DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C).")
POWER: Final = Series("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).")
UTILISATION: Final = Series("DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %).")
USED: Final = Series("DCGM_FI_DEV_FB_USED", "gauge", "Framebuffer memory used (in MiB).")
FREE: Final = Series("DCGM_FI_DEV_FB_FREE", "gauge", "Framebuffer memory free (in MiB).")
XID: Final = Series("DCGM_FI_DEV_XID_ERRORS", "gauge", "Value of the last XID error encountered.")
RETRIES: Final = Series(
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", "Total number of PCIe retries."
)

# Called counters by the exporter; what they read is the throughput at that moment.
PCIE_OUT: Final = Series(
    "DCGM_FI_DEV_PCIE_TX_THROUGHPUT", "counter", "Bytes transmitted through PCIe TX (in KB)."
)
PCIE_IN: Final = Series(
    "DCGM_FI_DEV_PCIE_RX_THROUGHPUT", "counter", "Bytes received through PCIe RX (in KB)."
)
NVLINK: Final = Series(
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "counter", "NVLink bandwidth of all lanes (in MB)."
)

# Called microseconds by older exporters; DCGM's header and its values say nanoseconds.
POWER_VIOLATION: Final = Series(
    "DCGM_FI_DEV_POWER_VIOLATION", "counter", "Throttling for power (in ns)."
)
THERMAL_VIOLATION: Final = Series(
    "DCGM_FI_DEV_THERMAL_VIOLATION", "counter", "Throttling for heat (in ns)."
)
ENGINE_ACTIVE: Final = Series(
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge", "Ratio of time the engine is active."
)
TENSOR_ACTIVE: Final = Series(
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge", "Ratio of cycles the tensor pipe is active."
)
DRAM_ACTIVE: Final = Series(
    "DCGM_FI_PROF_DRAM_ACTIVE", "gauge", "Ratio of cycles the memory interface is active."
)

READ: Final = (
    CLOCK,
    TEMPERATURE,
    POWER,
    UTILISATION,
    USED,
    FREE,
    XID,
    RETRIES,
    PCIE_OUT,
    PCIE_IN,
    NVLINK,
    POWER_VIOLATION,
    THERMAL_VIOLATION,
    ENGINE_ACTIVE,
    TENSOR_ACTIVE,
    DRAM_ACTIVE,
)
"""All that boards and alerts read, and so what the exporter must be told to show."""

# --- one of each unit, in the base unit that boards show --------------------------------------

MEGAHERTZ: Final = 1_000_000
MEBIBYTE: Final = 1_048_576
KILOBYTE: Final = 1_000
MEGABYTE: Final = 1_000_000
NANOSECONDS: Final = 1_000_000_000
