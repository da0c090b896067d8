"""A real uvicorn in a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path

from programs import LOOPBACK, Program, clean_environment, free_port, listens

CHAT = "/v1/chat/completions"


def uvicorn(folder, factory="create", *, port=None, flags=(), **env):
    """Start `apps:<factory>`, or a module's own; the program, which may not be ready yet."""
    port = free_port() if port is None else port
    factory = factory if ":" in factory else f"apps:{factory}"
    here = str(Path(__file__).parent)
    command = [
        *(sys.executable, "-m", "uvicorn", "--factory", factory, "--app-dir", here),
        *("--host", LOOPBACK, "--port", port, "--no-access-log", *flags),
    ]
    log = folder / f"uvicorn-{port}.log"
    program = Program(command, log, env=clean_environment(**env))
    program.port = port
    return program


def exports_to(endpoint, protocol="http/protobuf", **more):
    """The environment of a server that exports soon."""
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        "OTEL_SERVICE_NAME": "staged",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "OTEL_METRIC_EXPORT_INTERVAL": "200",
        **more,
    }


def serving(programs, folder, factory="create", **env):
    """A uvicorn that listens, ended with the test."""
    program = uvicorn(folder, factory, **env)
    programs.append(program)
    program.ready(lambda: listens(program.port), "uvicorn")
    return program
