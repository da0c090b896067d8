"""Every series that a query may read, with its labels.

Ours, vLLM's, those of DCGM's exporter, and what our rules record.
"""

from __future__ import annotations

import re

from board_files import DCGM_SAMPLE, VLLM_PAGE, rules

from llm_trace import semconv as s

HISTOGRAM_PARTS = ("bucket", "sum", "count")
OF_THE_SCRAPE = {"job", "instance"}
PROMETHEUS_OWN = {"ALERTS": "Prometheus makes it of the alerts themselves"}
MODEL = s.REQUEST_MODEL.replace(".", "_")


def ours():
    """Each series that llm_trace shows, and its labels."""
    for metric in s.METRICS:
        labels = {name.replace(".", "_") for name in metric.labels} | OF_THE_SCRAPE
        if metric.kind == "histogram":
            parts = (f"{metric.prometheus}_{part}" for part in HISTOGRAM_PARTS)
            yield from ((part, labels | {"le"}) for part in parts)
        else:
            yield metric.prometheus, labels


def sampled(page):
    """Each series on the page, and its labels."""
    shown = re.findall(r"^([\w:]+)\{(.*)\}", page, re.MULTILINE)
    for name, labels in shown:
        yield name, set(re.findall(r"(\w+)=\"", labels)) | OF_THE_SCRAPE


def recorded():
    """Each series that our rules record, and the label that it is read by."""
    return ((rule["record"], {MODEL}) for rule in rules("rules.yaml"))


LABELS = {
    **dict(ours()),
    **dict(sampled(VLLM_PAGE)),
    **dict(sampled(DCGM_SAMPLE.read_text())),
    **dict(recorded()),
    **dict.fromkeys(PROMETHEUS_OWN, ()),
}
KNOWN = set(LABELS)
