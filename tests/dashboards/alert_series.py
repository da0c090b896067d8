"""What alert cases are written with: series and alerts, as promtool wants to read them."""

from __future__ import annotations

from typing import NamedTuple

from dashboards import vllm
from llm_trace import semconv as s

RUNBOOK = "https://github.com/llm-trace/llm-trace/blob/main/dashboards/runbooks/{}.md"
APP = {"job": "app", "instance": "app:8000"}
GPU = {"job": "dcgm", "instance": "gpu:9400", "Hostname": "h", "gpu": "0"}
ENGINE = {"job": "vllm", "instance": "vllm:8000", "engine": "0", vllm.MODEL: "m"}


class Case(NamedTuple):
    """What is scraped, and which alerts of one name it makes fire after so many minutes."""

    says: str
    alert: str
    minutes: int
    series: tuple
    fires: tuple = ()


def ours(metric, values, part="", **labels):
    """Build a series of ours of the model m, as promtool wants it."""
    name = f"{metric.prometheus}_{part}" if part else metric.prometheus
    model = {"gen_ai_request_model": "m"} if s.REQUEST_MODEL in metric.labels else {}
    return _series(name, values, APP | model | labels)


def theirs(name, values, **labels):
    """Build a series of a vLLM that serves the model m."""
    return _series(name, values, ENGINE | labels)


def gpu(series, values, **labels):
    """Build a series of the DCGM exporter of the GPU 0 on the host h."""
    return _series(series.name, values, GPU | labels)


def _series(name, values, labels):
    pairs = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return {"series": f"{name}{{{pairs}}}", "values": values}


def fires(alert, severity, summary, description, **labels):
    """Build what promtool expects of one firing alert."""
    notes = {"summary": summary, "description": description, "runbook_url": RUNBOOK.format(alert)}
    return {"exp_labels": {"severity": severity, **labels}, "exp_annotations": notes}


def phase(seconds, name, band):
    """Build the seconds a minute that requests of a TTFT band spend in a phase."""
    return ours(s.TTFT_PHASE, seconds, llm_trace_phase=name, llm_trace_ttft_band=band)


def requests(number, outcome, last_phase):
    """Build the requests a minute that end like this."""
    return ours(s.REQUESTS, number, llm_trace_outcome=outcome, llm_trace_last_phase=last_phase)
