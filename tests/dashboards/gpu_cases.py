"""Firing and quiet cases of the alert about GPUs that are held back.

A case is one sentence; what it expects is written out, labels and annotations in full.
"""

from __future__ import annotations

from alert_series import Case, fires, gpu

from dashboards import dcgm

NOTHING = "9223372036854775794x60"
"""What a field reads that the GPU does not have."""

MINUTE = 60 * 10**9
"""Nanoseconds."""

DROPPED, FULL = "1980x30 1400x30", "1980x60"


def held(part):
    """Build a counter of a GPU that is held back for a part of each minute, after half an hour."""
    return f"0x30 0+{round(part * MINUTE)}x30"


def throttled(reason, share):
    """Build the alert for the GPU 0 of the host h."""
    return fires(
        "LlmTraceGpuThrottled",
        "warning",
        f"GPU 0 of h is slowed by {reason}.",
        f"{share} of the last 5m it was held back by {reason}, and its clock is below 90% of its "
        "best in 6h. Prefill is slower for it; a queue that was there before is not.",
        Hostname="h",
        gpu="0",
        reason=reason,
        llm_trace_phase="prefill",
    )


CASES = (
    Case(
        "A GPU that is too hot and clocks down is throttled by heat",
        "LlmTraceGpuThrottled",
        50,
        (gpu(dcgm.CLOCK, DROPPED), gpu(dcgm.THERMAL_VIOLATION, held(0.6))),
        (throttled("heat", "60%"),),
    ),
    Case(
        "A GPU at its power limit that clocks down is throttled by power",
        "LlmTraceGpuThrottled",
        50,
        (
            gpu(dcgm.CLOCK, DROPPED),
            gpu(dcgm.POWER_VIOLATION, held(0.9)),
            gpu(dcgm.THERMAL_VIOLATION, NOTHING),
        ),
        (throttled("power", "90%"),),
    ),
    Case(
        "Two pods that share a GPU make one alert",
        "LlmTraceGpuThrottled",
        50,
        tuple(
            series
            for pod in ("a", "b")
            for series in (
                gpu(dcgm.CLOCK, DROPPED, pod=pod),
                gpu(dcgm.THERMAL_VIOLATION, held(0.6), pod=pod),
            )
        ),
        (throttled("heat", "60%"),),
    ),
    Case(
        "A GPU that boosts up to its power limit at full clocks is quiet",
        "LlmTraceGpuThrottled",
        50,
        (gpu(dcgm.CLOCK, FULL), gpu(dcgm.POWER_VIOLATION, held(0.9))),
    ),
    Case(
        "A GPU that idles at a low clock is quiet",
        "LlmTraceGpuThrottled",
        50,
        (gpu(dcgm.CLOCK, "1980x30 345x30"), gpu(dcgm.THERMAL_VIOLATION, "0x60")),
    ),
    Case(
        "Counters without a value are quiet, also in the moment when they lose it",
        "LlmTraceGpuThrottled",
        50,
        (
            gpu(dcgm.CLOCK, DROPPED),
            gpu(dcgm.THERMAL_VIOLATION, f"0x47 {NOTHING}"),
            gpu(dcgm.POWER_VIOLATION, NOTHING),
        ),
    ),
)
