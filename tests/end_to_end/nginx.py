"""A real nginx as a proxy; on Debian the package is unpacked, not installed."""

from __future__ import annotations

import shutil
import subprocess

from programs import LOOPBACK, Program, free_port, listens

CONFIG = """\
daemon off;
master_process off;
worker_processes 1;
pid {folder}/nginx.pid;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen {host}:{port};
        location / {{
            proxy_pass http://{host}:{upstream};
            proxy_http_version {version};
            proxy_set_header X-Request-Start "t=${{msec}}";
            proxy_buffering {buffering};
        }}
    }}
}}
"""


def find_nginx(cache):
    """The program: on PATH or where Debian puts it, else unpacked into `cache`; None without."""
    found = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin") or shutil.which("nginx")
    if found:
        return found
    unpacked = cache / "usr" / "sbin" / "nginx"
    if not unpacked.is_file() and shutil.which("apt-get") and shutil.which("dpkg-deb"):
        cache.mkdir(parents=True, exist_ok=True)
        _try(cache, "apt-get", "-qq", "download", "nginx")
        for package in cache.glob("nginx_*.deb"):
            _try(cache, "dpkg-deb", "-x", package, cache)
    return unpacked if unpacked.is_file() and _runs(unpacked) else None


def _try(folder, *command):
    subprocess.run(command, cwd=folder, check=False, capture_output=True, timeout=120)


def _runs(program):
    """Whether its libraries are there."""
    return subprocess.run([program, "-v"], check=False, capture_output=True).returncode == 0


def nginx(program, upstream, folder, *, buffering, version="1.0"):
    """A proxy in front of the port `upstream`; as by default it speaks HTTP/1.0 to it."""
    folder.mkdir()
    port = free_port()
    config = folder / "nginx.conf"
    config.write_text(
        CONFIG.format(
            folder=folder,
            host=LOOPBACK,
            port=port,
            upstream=upstream,
            buffering=buffering,
            version=version,
        ),
        encoding="utf-8",
    )
    command = (program, "-p", folder, "-c", config, "-e", "stderr")
    started = Program(command, folder / "nginx.log")
    started.port = port
    return started


def ready(proxy):
    """Wait until it listens."""
    proxy.ready(lambda: listens(proxy.port), "nginx")
    return proxy
