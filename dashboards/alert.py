"""What an alert is, and the words of its texts that Prometheus fills in."""

from __future__ import annotations

from typing import Final, NamedTuple

from dashboards import queries as q
from dashboards import vllm


class Alert(NamedTuple):
    """One alert."""

    name: str
    severity: str
    expr: str
    summary: str
    description: str
    hold: str = ""
    labels: dict[str, str] = {}  # noqa: RUF012 - never changed


# --- what texts are made of -------------------------------------------------------------------


def text_of(name: str) -> str:
    """The words that Prometheus replaces by the value of a label."""
    return "{{ $labels." + name + " }}"


MODEL: Final = text_of(q.MODEL)
ENGINE: Final = text_of(vllm.MODEL)
PHASE: Final = "{{ with $labels." + q.PHASE + " }}{{ . }}{{ else }}no one phase{{ end }}"
SHARE: Final = "{{ $value | humanizePercentage }}"
SECONDS: Final = "{{ $value | humanizeDuration }}"
NUMBER: Final = "{{ $value | humanize }}"
