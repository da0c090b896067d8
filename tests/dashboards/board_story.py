"""The incident that the pictures in the docs show: an hour of a small RAG app, told to three jobs.

Half an hour is calm, and is what "What changed" compares with. Of the half hour that is shown, the
first third is calm, too; in the second one GPU gets hot and prefill slower; in the last it is cool
again, and more requests come than there are slots.

The app's pages come from requests driven through the middleware; vLLM's are its recorded page with
the same requests counted on it; the GPUs' are the documented page with the story's values.
"""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random

from board_files import DCGM_SAMPLE, VLLM_PAGE
from board_prometheus import START, STEP
from board_traces import Traces
from board_traffic import Parked, Request, Served

from dashboards import dcgm, vllm
from llm_trace import semconv as s

SHOWN = 30 * 60
"""Seconds that the pictures show, up to the last page."""

BEFORE, CALM, HOT, FULL = 60, 20, 20, 21
"""Rounds of half a minute."""

ROUNDS = ("calm",) * (BEFORE + CALM) + ("hot",) * HOT + ("full",) * FULL
HOT_GPU = ("gpu-node-2", "0")
FOUR = (s.RETRIEVAL, s.QUEUE_WAIT, s.PREFILL, s.DECODE)
PARKED = {"calm": (1, 0, 1, 4), "hot": (1, 1, 2, 5), "full": (1, 7, 1, 8)}
"""Requests in flight when a page is read: in retrieval, queue_wait, prefill, decode."""
WAITED = {"calm": 15, "hot": 120, "full": 1_900}
"""For how long they have been where they are, in ms."""

_SERIES = re.compile(r"([\w:]+)\{(.*)\} (\S+)$")


def told():
    """The pages of each job, round by round, and the roots of the traces that were made."""
    dice = Random(5)  # noqa: S311 - the same picture every time
    traces, engine = Traces(), Engine()
    process = Served(traces.tracer(), traces.observer())
    pages = {"app": [], "vllm": [], "dcgm": []}
    for number, mood in enumerate(ROUNDS):
        traces.at = START + number * STEP
        requests = [_request(dice, mood) for _ in range(18 if mood == "full" else 12)]
        waiting = [n + dice.choice((0, 0, 1)) if n else 0 for n in PARKED[mood]]
        process.serve(requests)
        parked = [Parked(where) for where, n in zip(FOUR, waiting, strict=True) for _ in range(n)]
        pages["app"].append(process.page_amid(parked, _about(dice, WAITED[mood])))
        pages["vllm"].append(engine.page(requests, *waiting[1:]))
        pages["dcgm"].append(_gpus(dice, number, mood))
    return pages, traces.roots


# --- requests ---------------------------------------------------------------------------------


def _request(dice, mood):
    cached = dice.choice((0, 0, 40, 90))
    prefill = (100 - cached) * 2 + 20
    usual = Request(
        admission=_about(dice, 3),
        retrieval=_about(dice, 60),
        prepare=_about(dice, 6),
        queue=_about(dice, 15),
        prefill=_about(dice, prefill),
        first_token=_about(dice, 6),
        gap=_about(dice, 18),
        cached=cached,
    )
    return replace(usual, **_trouble(dice, mood, usual))


def _about(dice, milliseconds):
    return max(1, round(milliseconds * dice.uniform(0.7, 1.4)))


def _trouble(dice, mood, usual):
    """What is different about a request in this mood."""
    chance = dice.random()
    if mood == "hot" and chance < 0.5:
        return {"prefill": 4 * usual.prefill, "gap": round(1.2 * usual.gap)}
    if mood == "full":
        queue = _about(dice, 1_500)
        left = chance < 0.12
        return {"queue": 2 * queue, "ends": "cancelled"} if left else {"queue": queue}
    if chance < 0.02:
        return {"ends": "error"}
    if chance < 0.06:
        return {"split": False}
    if chance < 0.075:
        return {"load": 4_000}
    return {"held": 40} if chance < 0.11 else {}


# --- vLLM -------------------------------------------------------------------------------------


class Engine:
    """vLLM's recorded page, emptied, on which requests are counted."""

    def __init__(self):
        lines = (_SERIES.match(line) for line in VLLM_PAGE.splitlines())
        self.values = {(m[1], m[2]): 0.0 for m in lines if m}

    def page(self, requests, waiting, prefilling, decoding):
        """The page after these requests, with so many in each state."""
        for request in requests:
            if request.ends == "ok":
                self._count(request)
        self._set(vllm.WAITING, waiting)
        self._set(vllm.WAITING_BY_REASON, waiting, 'reason="capacity"')
        self._set(vllm.RUNNING, prefilling + decoding)
        self._set(vllm.KV_USAGE, min(0.97, 0.08 * (prefilling + decoding) + 0.05 * waiting))
        self._add(vllm.PREEMPTIONS, waiting // 4)
        return "\n".join(f"{name}{{{labels}}} {v}" for (name, labels), v in self.values.items())

    def _count(self, request):
        queue, prefill, gap = (n / 1000 for n in (request.queue, request.prefill, request.gap))
        computed = 100 - request.cached
        self._observe(vllm.QUEUE, queue)
        self._observe(vllm.PREFILL, prefill)
        self._observe(vllm.TTFT, queue + prefill)
        self._observe(vllm.COMPUTED_TOKENS, computed)
        self._observe(vllm.STEP_TOKENS, computed + 5)
        for _ in range(3):
            self._observe(vllm.INTER_TOKEN, gap)
            self._observe(vllm.STEP_TOKENS, 6)
        self._add(vllm.PREFIX_QUERIES, 100)
        self._add(vllm.PREFIX_HITS, request.cached)
        self._add(vllm.PROMPT_TOKENS, 100)
        self._add(vllm.PROMPT_TOKENS_BY_SOURCE, computed, 'source="local_compute"')
        self._add(vllm.PROMPT_TOKENS_BY_SOURCE, request.cached, 'source="local_cache_hit"')
        self._add(vllm.OUTPUT_TOKENS, 4)
        self._add(vllm.DRAFT_TOKENS, 3)
        self._add(vllm.ACCEPTED_TOKENS, 2)
        self._add(vllm.FINISHED, 1, 'finished_reason="stop"')

    def _of(self, name, label=""):
        return [key for key in self.values if key[0] == name and label in key[1]]

    def _set(self, name, value, label=""):
        for key in self._of(name, label):
            self.values[key] = float(value)

    def _add(self, name, value, label=""):
        for key in self._of(name, label):
            self.values[key] += value

    def _observe(self, name, value):
        for key in self._of(f"{name}_bucket"):
            bound = float(re.search(r'le="([^"]+)"', key[1])[1])
            self.values[key] += value <= bound
        self._add(f"{name}_sum", value)
        self._add(f"{name}_count", 1)


# --- GPUs -------------------------------------------------------------------------------------


def _gpus(dice, number, mood):
    """The documented page with what the story says of each GPU."""
    lines = (_SERIES.match(line) for line in DCGM_SAMPLE.read_text().splitlines())
    return "\n".join(_gpu_line(dice, number, mood, *m.groups()) for m in lines if m)


def _gpu_line(dice, number, mood, name, labels, value):
    gpu = tuple(re.search(rf'\b{label}="([^"]*)"', labels)[1] for label in (dcgm.HOST, dcgm.GPU))
    calm = float(value) if gpu != HOT_GPU else CALM_VALUES.get(name, float(value))
    if float(value) >= dcgm.NO_GAUGE:
        return f"{name}{{{labels}}} {value}"
    told = _told(name, number, calm, hot=mood == "hot" and gpu == HOT_GPU)
    shaky = name in SHAKY
    return f"{name}{{{labels}}} {told * dice.uniform(0.97, 1.03) if shaky else told}"


CALM_VALUES = {
    dcgm.CLOCK.name: 1980.0,
    dcgm.TEMPERATURE.name: 55.0,
    dcgm.POWER.name: 605.0,
    dcgm.NVLINK.name: 48_100.0,
    dcgm.TENSOR_ACTIVE.name: 0.31,
    dcgm.DRAM_ACTIVE.name: 0.52,
    dcgm.RETRIES.name: 0.0,
}
"""What the GPU that gets hot reads while it is cool."""

HOT_VALUES = {
    dcgm.CLOCK.name: 1350.0,
    dcgm.TEMPERATURE.name: 87.0,
    dcgm.POWER.name: 430.0,
    dcgm.TENSOR_ACTIVE.name: 0.21,
    dcgm.DRAM_ACTIVE.name: 0.4,
}
SHAKY = {
    *(dcgm.POWER.name, dcgm.NVLINK.name, dcgm.PCIE_IN.name, dcgm.PCIE_OUT.name),
    *(dcgm.TENSOR_ACTIVE.name, dcgm.DRAM_ACTIVE.name, dcgm.TEMPERATURE.name),
}


def _told(name, number, calm, *, hot):
    if name == dcgm.THERMAL_VIOLATION.name:
        rounds = min(max(number - BEFORE - CALM, 0), HOT) if calm else 0
        return rounds * STEP * 0.6e9
    if name == dcgm.POWER_VIOLATION.name:
        return number * STEP * 0.05e9
    return HOT_VALUES.get(name, calm) if hot else calm
