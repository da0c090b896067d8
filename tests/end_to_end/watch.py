"""Real Prometheus with the shipped rules, and real Alertmanager behind it, over live servers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import yaml
from programs import LOOPBACK, Program, eventually, free_port, listens
from stamped_client import ask

ROOT = Path(__file__).parents[2]
_BUILD = """
import pathlib, sys
from dashboards import knobs
for change in sys.argv[2:]:
    name, value = change.split("=")
    setattr(knobs, name, type(getattr(knobs, name))(value))
from dashboards import build
for name in ("rules.yaml", "alerts.yaml"):
    pathlib.Path(sys.argv[1], name).write_text(build.files()[name])
"""


def build_rules(folder, **knobs):
    """Write the rules and alerts as an operator would build them with these knobs."""
    changes = [f"{name}={value}" for name, value in knobs.items()]
    command = [sys.executable, "-c", _BUILD, folder, *changes]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)


_TEMPLATES = Path("/usr/share/prometheus/alertmanager")
_OVERLAID = 'mount -t overlay overlay -o lowerdir="$1":/usr/share /usr/share && shift && exec "$@"'


def _where_it_looks(program):
    """How to start Debian's Alertmanager, which reads its templates at one fixed place.

    Where the package is only unpacked, the program alone sees them there.
    """
    if _TEMPLATES.is_dir():
        return [program]
    unpacked = Path(program).parents[1] / "share"
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", _OVERLAID, "sh", unpacked, program]


class Alertmanager:
    """A running Alertmanager that sends nothing to anybody."""

    def __init__(self, program, folder):
        config = folder / "alertmanager.yml"
        config.write_text("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")
        self.port = free_port()
        command = [
            *_where_it_looks(program),
            *(f"--config.file={config}", f"--storage.path={folder / 'alerts'}"),
            *(f"--web.listen-address={LOOPBACK}:{self.port}", "--cluster.listen-address="),
        ]
        self.program = Program(command, folder / "alertmanager.log")
        self.program.ready(self._is_ready, "Alertmanager")

    def _is_ready(self):
        return listens(self.port) and ask(self.port, "/-/ready").status == 200

    def alerts(self):
        """The labels of every alert that it was told of."""
        return [alert["labels"] for alert in ask(self.port, "/api/v2/alerts").document]

    def stop(self):
        """End it."""
        self.program.stop()


class Watch:
    """Prometheus scrapes these jobs every second and plays the rules that lie in the folder."""

    def __init__(self, programs, folder, alertmanager=None, **jobs):
        (folder / "prometheus.yml").write_text(yaml.safe_dump(_config(alertmanager, jobs)))
        self.alertmanager = alertmanager
        self.port = free_port()
        command = [
            *(programs / "prometheus", f"--config.file={folder / 'prometheus.yml'}"),
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={LOOPBACK}:{self.port}",
            "--enable-feature=exemplar-storage",
        ]
        self.program = Program(command, folder / "prometheus.log")
        self.program.ready(self._is_ready, "Prometheus")
        self.scraped_twice(len(jobs))

    def _is_ready(self):
        return listens(self.port) and ask(self.port, "/-/ready").status == 200

    def scraped_twice(self, jobs):
        """Wait for two more scrapes of every job, which growth is measured from."""
        twice = "count(count_over_time(up[10s]) >= 2)"
        eventually(
            lambda: [value for _, value in self.ask(twice)] == [jobs],
            "Prometheus does not scrape",
            log=self.program,
        )

    def ask(self, expr):
        """The samples of the query `expr` now: labels and value."""
        answer = ask(self.port, f"/api/v1/query?query={quote(expr)}")
        assert answer.status == 200, answer.body
        result = answer.document["data"]["result"]
        return [(sample["metric"], float(sample["value"][1])) for sample in result]

    def stop(self):
        """End it."""
        self.program.stop()


def filled(expr):
    """The query `expr` as Grafana fills it in where the last seconds are shown, of everything."""
    for name in ("$__rate_interval", "$__range"):
        expr = expr.replace(name, "20s")
    for name in ("$model", "$job", "$host", "$gpu"):
        expr = expr.replace(name, ".*")
    return expr


def _config(alertmanager, jobs):
    every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    scrapes = [
        {"job_name": job, "static_configs": [{"targets": [f"{LOOPBACK}:{port}"]}]}
        for job, port in jobs.items()
    ]
    config = {
        "global": every,
        "rule_files": ["rules.yaml", "alerts.yaml"],
        "scrape_configs": scrapes,
    }
    if alertmanager is not None:
        target = {"static_configs": [{"targets": [f"{LOOPBACK}:{alertmanager.port}"]}]}
        config["alerting"] = {"alertmanagers": [target]}
    return config
