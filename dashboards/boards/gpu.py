"""The GPU: whether prefill got slower because the clocks dropped, from NVIDIA's DCGM exporter."""

from __future__ import annotations

from typing import Final

from dashboards import colours, dcgm, gpus, knobs
from dashboards import panels as p
from dashboards import queries as q
from llm_trace import semconv as s

NEEDED: Final = """\
This board reads NVIDIA's **DCGM exporter**. Where the number beside this is 0, Prometheus has no \
series of it: there is no GPU, no exporter, or no scrape of it, and the panels about GPUs say \
*no data*. The panels about requests work without it.

Throttling and tensor and memory activity are **off by default**: start the exporter with \
`-f counters.csv`, which is llm_trace's own (`deploy/dcgm`). They say *no data* until then.

Read prefill above the clocks. **Slower prefill at full clocks is not the GPU's fault**: look at \
prompt length, cache and queue. A full queue is not prefill at all.
"""


def _seen() -> str:
    return f"count({q.greatest(gpus.gauge(dcgm.CLOCK, *gpus.CHOSEN), *gpus.ONE)}) or vector(0)"


def _throttled(reason: str, series: dcgm.Series) -> p.Query:
    return p.Query(gpus.throttled(series, q.STEP, *gpus.CHOSEN), f"{gpus.NAMED} {reason}")


def _retries() -> str:
    return q.greatest(gpus.grown(dcgm.RETRIES, q.STEP, *gpus.CHOSEN), *gpus.ONE)


def _active(series: dcgm.Series, what: str) -> p.Query:
    return p.Query(gpus.shown(series), f"{gpus.NAMED} {what}")


def _above_the_floor(title: str, description: str, ratio: s.Metric) -> p.Panel:
    """Where the settings `device` and `model_config` are known, or vLLM tells them."""
    median, tail = (
        p.Query(q.quantile(at, ratio), f"p{at * 100:g}", exemplar=True) for at in (0.5, 0.95)
    )
    return p.lines(
        title,
        f"{description} Empty where the device or the model is not known; under 100 %, the "
        "settings are wrong.",
        p.SHARE,
        median,
        tail,
        colours=colours.QUANTILES,
    )


IS_IT_THERE: Final = p.Row(
    "Is there a GPU to look at?",
    (
        p.text("What this board needs", NEEDED, width=18),
        p.number(
            "GPUs seen",
            "GPUs of the chosen hosts whose clock the DCGM exporter shows.",
            p.COUNT,
            p.Query(_seen(), "GPUs"),
        )._replace(height=p.SHORT),
    ),
)

BESIDE: Final = p.Row(
    "Prefill slower, or clocks dropped?",
    (
        p.latency(
            "Prefill duration",
            "From a request's first step to its first token. Lay it beside the clocks below.",
            s.PHASE_DURATION,
            q.equal(q.PHASE, s.PREFILL),
        ),
        p.latency(
            "Decode time per token",
            "Mean time between the tokens of an answer after its first, against the objective. "
            "Decode waits for memory, so lower SM clocks show here less than in prefill.",
            s.TIME_PER_OUTPUT_TOKEN,
            under=knobs.TPOT_SECONDS,
        ),
        p.lines(
            "SM clock",
            "The clock of each GPU's processors. It falls when a GPU idles, too: a drop counts "
            "while requests run.",
            p.HERTZ,
            gpus.each(gpus.shown(dcgm.CLOCK, dcgm.MEGAHERTZ)),
        ),
        p.lines(
            "Throttled",
            "Share of the time for which a GPU was held back for heat or power. Some for power is "
            "usual under load, since GPUs boost up to their limit; any for heat is a fault.",
            p.SHARE,
            _throttled("heat", dcgm.THERMAL_VIOLATION),
            _throttled("power", dcgm.POWER_VIOLATION),
        ),
    ),
)

FLOORS: Final = p.Row(
    "How far from the roofline?",
    (
        _above_the_floor(
            "Prefill over its floor",
            "Prefill time over the least that the device could take for the tokens computed, an "
            "estimate. Near 100 %, only fewer tokens or more compute help; far above, "
            "others' work, small chunks or low clocks are in the way.",
            s.PREFILL_RATIO,
        ),
        _above_the_floor(
            "Decode step over its floor",
            "Time per output token over the least that the memory's bandwidth allows, an estimate. "
            "Near its floor decode is as fast as the device; far above, steps wait for something.",
            s.DECODE_RATIO,
        ),
    ),
)

WHY: Final = p.Row(
    "What holds it back?",
    (
        p.lines(
            "Temperature",
            "The temperature of each GPU.",
            p.CELSIUS,
            gpus.each(gpus.shown(dcgm.TEMPERATURE)),
            width=8,
        ),
        p.lines(
            "Power",
            "The power that each GPU draws. Flat at its limit, it is capped.",
            p.WATT,
            gpus.each(gpus.shown(dcgm.POWER)),
            width=8,
        ),
        p.lines(
            "Something ran",
            "Share of the time in which at least one kernel ran. 100 % says that the GPU was "
            "never idle and not that it is full: one small kernel after another reads 100 %.",
            p.SHARE,
            gpus.each(gpus.shown(dcgm.UTILISATION, 0.01)),
            width=8,
        ),
        p.lines(
            "Bound by compute or by memory?",
            "Share of cycles in which the tensor pipes and the memory interface worked. Prefill is "
            "mostly the first and decode the second; low in both, the GPU waits for work.",
            p.SHARE,
            _active(dcgm.TENSOR_ACTIVE, "tensor"),
            _active(dcgm.DRAM_ACTIVE, "memory"),
        ),
        p.lines(
            "Engine active",
            "Share of the time in which the GPU's engine had work, measured by the GPU itself.",
            p.SHARE,
            gpus.each(gpus.shown(dcgm.ENGINE_ACTIVE)),
        ),
    ),
)

ROOM: Final = p.Row(
    "Whose memory is it?",
    (
        p.lines(
            "Memory used",
            "Memory in use on each GPU. vLLM takes its share at the start and keeps it: full is "
            "usual, and says nothing about the KV cache.",
            p.BYTES,
            gpus.each(gpus.shown(dcgm.USED, dcgm.MEBIBYTE)),
            width=8,
        ),
        p.lines(
            "Memory free",
            "Memory that nobody has on each GPU.",
            p.BYTES,
            gpus.each(gpus.shown(dcgm.FREE, dcgm.MEBIBYTE)),
            width=8,
        ),
        p.bars(
            "Memory used, by pod",
            "Which pod has which GPU, where Kubernetes tells the exporter; a GPU that several pods "
            "share shows the whole for each.",
            p.BYTES,
            p.Query(gpus.by_pod(dcgm.USED, dcgm.MEBIBYTE), gpus.NAMED + " {{" + dcgm.POD + "}}"),
            width=8,
        ),
    ),
)

LINKS: Final = p.Row(
    "Links and faults",
    (
        p.lines(
            "NVLink",
            "Bytes a second over all NVLinks of each GPU. With tensor parallelism each step waits "
            "for these.",
            p.BYTES_PER_SECOND,
            gpus.each(gpus.shown(dcgm.NVLINK, dcgm.MEGABYTE)),
            width=8,
        ),
        p.lines(
            "PCIe, to the GPU",
            "Bytes a second that each GPU receives: weights being loaded, cache being brought in.",
            p.BYTES_PER_SECOND,
            gpus.each(gpus.shown(dcgm.PCIE_IN, dcgm.KILOBYTE)),
            width=8,
        ),
        p.lines(
            "PCIe, from the GPU",
            "Bytes a second that each GPU sends: cache being moved out.",
            p.BYTES_PER_SECOND,
            gpus.each(gpus.shown(dcgm.PCIE_OUT, dcgm.KILOBYTE)),
            width=8,
        ),
        p.lines(
            "PCIe retries",
            "Packets a second that had to be sent again: a bad slot, riser or cable.",
            p.PER_SECOND,
            gpus.each(_retries()),
        ),
        p.lines(
            "Last XID error",
            "The number of the last error that the driver told of each GPU, 0 for none. It stays "
            "after the error; NVIDIA's list of XIDs says what it means.",
            p.COUNT,
            gpus.each(gpus.shown(dcgm.XID)),
        ),
    ),
)

BOARD: Final = p.Board(
    "llm-trace-gpu",
    "LLM: GPU",
    "What the GPUs did while prefill took its time. Look at the queue before the clocks.",
    f"label_values({q.select(s.TTFT_OR_END, part='count')}, {q.MODEL})",
    (IS_IT_THERE, BESIDE, FLOORS, WHY, ROOM, LINKS),
    (
        p.Choice("host", "Host", f"label_values({dcgm.CLOCK.name}, {dcgm.HOST})"),
        p.Choice(
            "gpu", "GPU", f'label_values({dcgm.CLOCK.name}{{{dcgm.HOST}=~"$host"}}, {dcgm.GPU})'
        ),
    ),
)
