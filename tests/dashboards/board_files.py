"""The generated boards and rules as Python values, with Grafana's variables filled in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import promql_parser
import yaml

ROOT = Path(__file__).parents[2] / "dashboards"
GENERATED = ROOT / "generated"
RUNBOOKS = ROOT / "runbooks"
VLLM_SAMPLES = tuple(sorted(Path(__file__).parent.glob("vllm-0.32-*metrics.txt")))
"""A recorded page, and what a server that speculates shows besides."""
VLLM_PAGE = "".join(path.read_text() for path in VLLM_SAMPLES)
DCGM_SAMPLE = Path(__file__).with_name("dcgm-documented-metrics.txt")
"""Written from the exporter's documentation: no GPU was at hand."""

VARIABLES = {
    "$__rate_interval": "2m",
    "$__range": "8m",
    "$model": ".*",
    "$job": ".*",
    "$host": ".*",
    "$gpu": ".*",
}
"""What Grafana would put in."""

BOARDS = tuple(json.loads(path.read_text()) for path in sorted(GENERATED.glob("boards/*.json")))


class Asked(NamedTuple):
    """One query of one panel."""

    board: str
    panel: dict
    target: dict

    @property
    def expr(self):
        """The query with the variables filled in."""
        return filled(self.target["expr"])

    def __str__(self):
        return f"{self.board}: {self.panel['title']} {self.target['refId']}"


def filled(expr):
    """The query `expr` with Grafana's variables filled in."""
    for name, value in VARIABLES.items():
        expr = expr.replace(name, value)
    return expr


PANELS = tuple(
    (board["uid"], panel)
    for board in BOARDS
    for panel in board["panels"]
    if panel["type"] not in {"row", "text"}
)
QUERIES = tuple(
    Asked(uid, panel, target)
    for uid, panel in PANELS
    for target in panel["targets"]
    if "expr" in target
)


def rules(name):
    """The rules of a generated rule file."""
    content = yaml.safe_load((GENERATED / name).read_text())
    return [rule for group in content["groups"] for rule in group["rules"]]


def nodes(expr):
    """Every node of the query `expr`."""
    found = []
    promql_parser.walk(promql_parser.parse(expr), found.append)
    return found


def metrics(expr):
    """The name of every metric that the query `expr` reads."""
    return {node.name for node in nodes(expr) if isinstance(node, promql_parser.VectorSelector)}
