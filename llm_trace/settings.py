"""Every setting of llm_trace: one frozen object, read once, checked at start.

What OpenTelemetry already has a variable for (endpoints, protocols, headers, sampling, resource,
content capture) is set by `OTEL_*` and is not repeated here.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from llm_trace.errors import SettingsError

PREFIX: Final = "LLM_TRACE_"

FOREIGN: Final = frozenset({"LLM_TRACE_VLLM_PYTHON"})
"""Variables of our commands, which the middleware does not read."""

QUIET_PATHS: Final = (
    *("/health*", "/livez", "/readyz", "/ready", "/live", "/ping", "/metrics", "/metrics/"),
    *("/docs", "/docs/*", "/redoc", "/openapi.json", "/favicon.ico", "/version", "/load"),
    *("*/v1/models", "/api/tags", "/api/version"),
)

_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "no", "off"})


def _boolean(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError("use true or false")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _routes(text: str) -> Mapping[str, str]:
    routes = {}
    for pair in _names(text):
        path, found, operation = pair.partition("=")
        if not found:
            raise ValueError("use path=operation, such as /ask=chat, separated by commas")
        routes[path.strip()] = operation.strip()
    return routes


def _setting(default: Any, parse: Callable[[str], Any], doc: str) -> Any:
    """One row of the table of settings: its default, how its variable is read, what it does."""
    about = {"parse": parse, "doc": doc}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=about)
    return field(default=default, metadata=about)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings; each is a keyword of `instrument()` and a variable `LLM_TRACE_<NAME>`.

    Raises:
        SettingsError: A value cannot be used; the message says what to do.
    """

    enabled: bool = _setting(True, _boolean, "False leaves the app untouched.")
    provider: str = _setting("vllm", str, "`gen_ai.provider.name` of spans and metrics.")
    served_models: tuple[str, ...] = _setting(
        (),
        _names,
        "Models that metrics name; others count as `other`. Empty: the models that the engine "
        "says it serves, and up to 32 that answered with tokens.",
    )
    phases: tuple[str, ...] = _setting(
        (), _names, "Names given to `phase()` that metrics may use as labels; others: `other`."
    )
    routes: Mapping[str, str] = _setting(
        {},
        _routes,
        "Generation routes beside the well-known ones: path suffix to `gen_ai.operation.name`.",
    )
    quiet_paths: tuple[str, ...] = _setting(
        QUIET_PATHS, _names, "Path patterns (`*` allowed) that are neither traced nor counted."
    )
    metrics_path: str = _setting(
        "/metrics", str, "Where `instrument()` serves Prometheus metrics; empty: nowhere."
    )
    rewrite_traceparent: bool = _setting(
        True,
        _boolean,
        "Make spans of inner instrumentation children of ours by the request's headers.",
    )
    latency_attributes: bool = _setting(
        True, _boolean, "Put the `gen_ai.latency.*` keys of vLLM and SGLang on the root span."
    )
    max_attribute_bytes: int = _setting(
        1024, int, "Longer string attributes are cut at a character, in UTF-8 bytes."
    )
    max_body_bytes: int = _setting(
        65_536, int, "Request and JSON answer bytes looked at for model and usage; 0: none."
    )
    cached_share: float = _setting(
        0.8, float, "Cached share of the prompt from which a request counts as `cached`."
    )
    shutdown_timeout: float = _setting(
        5.0, float, "Seconds that the process may spend on sending the last spans at its end."
    )
    otlp_endpoint: str | None = _setting(
        None,
        str,
        "OTLP endpoint for spans and metrics; None: the `OTEL_EXPORTER_OTLP_*` variables.",
    )
    otlp_protocol: str | None = _setting(
        None, str, "`grpc` or `http/protobuf`; None: the `OTEL_EXPORTER_OTLP_*` variables."
    )

    def __post_init__(self) -> None:
        for name, fits, advice in _RULES:
            value = getattr(self, name)
            if not _fits(fits, value):
                raise SettingsError(f"setting {name}={value!r} cannot be used: {advice}.")

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **given: Any) -> Settings:
        """Settings from `LLM_TRACE_*`, with keywords beating the environment.

        Raises:
            SettingsError: An unknown name or a value that cannot be used.
        """
        known = {f.name: f for f in fields(cls)}
        values = _read(os.environ if environ is None else environ, known)
        for name in given:
            if name not in known:
                raise SettingsError(_unknown(f"setting {name!r}", name, known))
        return cls(**{**values, **given})


def _fits(fits: Callable[[Any], bool], value: Any) -> bool:
    try:
        return fits(value)
    except (TypeError, AttributeError):
        return False


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_names(value: Any) -> bool:
    return isinstance(value, tuple | list) and all(isinstance(name, str) for name in value)


_RULES: Final[tuple[tuple[str, Callable[[Any], bool], str], ...]] = (
    ("enabled", lambda v: isinstance(v, bool), "use true or false"),
    ("provider", lambda v: bool(v.strip()), "name the provider, such as vllm"),
    ("served_models", _is_names, "use a list of model names"),
    ("phases", _is_names, "use a list of phase names"),
    ("quiet_paths", _is_names, "use a list of path patterns"),
    (
        "routes",
        lambda v: all(p.startswith("/") and o for p, o in v.items()),
        "each route needs a path that begins with / and an operation, such as /ask=chat",
    ),
    (
        "metrics_path",
        lambda v: not v or v.startswith("/"),
        "begin the path with / or leave it empty",
    ),
    ("rewrite_traceparent", lambda v: isinstance(v, bool), "use true or false"),
    ("latency_attributes", lambda v: isinstance(v, bool), "use true or false"),
    ("max_attribute_bytes", lambda v: _is_number(v) and v > 0, "use a number above 0"),
    ("max_body_bytes", lambda v: _is_number(v) and v >= 0, "use 0 or more bytes"),
    ("cached_share", lambda v: _is_number(v) and 0 < v <= 1, "use a share above 0, up to 1"),
    ("shutdown_timeout", lambda v: _is_number(v) and v > 0, "use seconds above 0"),
    (
        "otlp_protocol",
        lambda v: v in {None, "grpc", "http/protobuf"},
        "use grpc or http/protobuf",
    ),
)


def _read(environ: Mapping[str, str], known: Mapping[str, Any]) -> dict[str, Any]:
    values = {}
    for variable, text in environ.items():
        if not variable.startswith(PREFIX) or variable in FOREIGN:
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name not in known:
            raise SettingsError(_unknown(f"environment variable {variable}", name, known, PREFIX))
        try:
            values[name] = known[name].metadata["parse"](text)
        except ValueError as error:
            raise SettingsError(f"{variable}={text!r} cannot be used: {error}.") from error
    return values


def _unknown(what: str, name: str, known: Mapping[str, Any], prefix: str = "") -> str:
    near = difflib.get_close_matches(name, known, n=1)
    shown = [f"{prefix}{k.upper()}" if prefix else k for k in near or sorted(known)]
    hint = f"did you mean {shown[0]}?" if near else f"known are {', '.join(shown)}."
    return f"{what} is unknown: {hint}"
