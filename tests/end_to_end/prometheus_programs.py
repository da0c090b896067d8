"""A real Prometheus and its promtool; on Debian the package is unpacked, not installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from programs import LOOPBACK, Program, free_port, listens
from stamped_client import ask


def find_programs(cache):
    """The directory of both programs: on PATH, else unpacked into `cache`; None without either."""
    on_path = [shutil.which(name) for name in ("prometheus", "promtool")]
    if all(on_path):
        return Path(on_path[0]).parent
    unpacked = cache / "usr" / "bin"
    if not _complete(unpacked):
        _unpack(cache)
    return unpacked if _complete(unpacked) else None


def _complete(folder):
    return all((folder / name).is_file() for name in ("prometheus", "promtool"))


def _unpack(cache):
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        return
    cache.mkdir(parents=True, exist_ok=True)
    try:
        _run(cache, "apt-get", "-qq", "download", "prometheus")
        package = next(cache.glob("prometheus_*.deb"))
        _run(cache, "dpkg-deb", "-x", package.name, ".")
        package.unlink()
    except (OSError, StopIteration, subprocess.SubprocessError):
        return


def _run(folder, *command):
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=120)


class Prometheus:
    """A running Prometheus that scrapes one port every second and keeps exemplars."""

    def __init__(self, programs, target, folder):
        config = folder / "prometheus.yml"
        config.write_text(
            "global: {scrape_interval: 1s}\n"
            "scrape_configs: [{job_name: target, static_configs: "
            f"[{{targets: ['{LOOPBACK}:{target}']}}]}}]\n"
        )
        self.port = free_port()
        command = [
            *(programs / "prometheus", f"--config.file={config}"),
            *(f"--storage.tsdb.path={folder / 'data'}",),
            *(f"--web.listen-address={LOOPBACK}:{self.port}",),
            "--enable-feature=exemplar-storage",
        ]
        self.program = Program(command, folder / "prometheus.log")
        self.program.ready(self._is_ready, "Prometheus")

    def _is_ready(self):
        return listens(self.port) and ask(self.port, "/-/ready").status == 200

    def api(self, path):
        """What its API answers."""
        return ask(self.port, f"/api/v1/{path}").document["data"]

    def stop(self):
        """End it."""
        self.program.stop()
