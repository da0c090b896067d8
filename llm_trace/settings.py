"""Every setting of llm_trace: one frozen object, read once, checked at start.

What OpenTelemetry already has a variable for (endpoints, protocols, headers, sampling, resource,
content capture) is set by `OTEL_*` and is not repeated here.
"""

from __future__ import annotations

import difflib
import os
import re
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

RETRIEVAL_STORES: Final = (
    *("qdrant", "milvus", "pinecone", "weaviate", "chroma", "chromadb", "lancedb", "marqo"),
    *("vespa", "turbopuffer", "elasticsearch", "opensearch", "redis", "valkey", "mongodb"),
    *("postgresql", "mysql", "mariadb", "sqlite", "cassandra", "neo4j", "clickhouse"),
)

_SERVICE_LINK: Final = re.compile(
    r"(?:\w+_)?(?:SERVICE_HOST=|SERVICE_PORT\w*=|PORT_\d+_(?:TCP|UDP|SCTP)\w*=|PORT=\w+://).*"
)
"""What Kubernetes sets in every pod for a Service whose name begins with `llm-trace`."""

_EMPTY_SAYS: Final = frozenset({"metrics_path", "quiet_paths", "retrieval_stores"})
"""Settings for which empty means none at all; an empty variable of any other counts as unset."""

CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_ON_SPANS: Final = frozenset({"span_only", "span_and_event"})
_NOT_ON_SPANS: Final = frozenset({"event_only", "no_content"})

_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "no", "off"})


def _boolean(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError("use true or false")


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("use a whole number") from None


def _decimal(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("use a number") from None


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


def _secret(doc: str) -> Any:
    """A row whose value is never shown, neither by `repr` nor by an error."""
    return field(default=None, metadata={"parse": str, "doc": doc}, repr=False)


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
    upstream: bool = _setting(
        True,
        _boolean,
        "Trace the app's own calls of engines over HTTP, made with httpx, openai or aiohttp.",
    )
    upstream_urls: tuple[str, ...] = _setting(
        (),
        _names,
        "URL patterns (`*` allowed; `/…` means a path) that are calls of engines. Empty: the "
        "well-known generation routes of any host.",
    )
    ledger_in_band: bool = _setting(
        True,
        _boolean,
        "Tell a caller that asks for it, by `x-llm-trace-ledger: 1`, this server's phases; and "
        "ask the engines that the app calls for theirs.",
    )
    latency_attributes: bool = _setting(
        True, _boolean, "Put the `gen_ai.latency.*` keys of vLLM and SGLang on the root span."
    )
    max_attribute_bytes: int = _setting(
        1024, _integer, "Longer string attributes are cut at a character, in UTF-8 bytes."
    )
    max_body_bytes: int = _setting(
        65_536, _integer, "Request and JSON answer bytes looked at for model and usage; 0: none."
    )
    capture_content: bool = _setting(
        False,
        _boolean,
        "Put what was asked and answered on the root span, never anywhere else. Also by "
        "`OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`.",
    )
    max_content_bytes: int = _setting(
        4096, _integer, "Captured content is cut at so many UTF-8 bytes, question and answer each."
    )
    user_key: str | None = _secret(
        "Key by which `llm_trace.user()` hashes who asks. None: nothing of a user is kept."
    )
    cached_share: float = _setting(
        0.8, _decimal, "Cached share of the prompt from which a request counts as `cached`."
    )
    device: str | None = _setting(
        None,
        str,
        "Accelerator that the engine runs on, such as `H100 SXM`, or `TFLOP/s:TB/s` of another: "
        "with `model_config` each request is compared with its floors. Inside vLLM both are known.",
    )
    model_config: str | None = _setting(
        None, str, "The served model's directory, its `config.json`, or a public name."
    )
    tensor_parallel: int = _setting(1, _integer, "Devices that share one copy of the model.")
    slow_ttft: float | None = _setting(
        None,
        _decimal,
        "Seconds to the first token, or to the end without one, from which a request is logged "
        "with its verdict, at most one a second. None: none is.",
    )
    retrieval_stores: tuple[str, ...] = _setting(
        RETRIEVAL_STORES,
        _names,
        "Database systems (`db.system.name`) whose client spans count as retrieval: searches in "
        "vector stores, and in general ones those that show a vector or full-text search.",
    )
    max_edge_seconds: float = _setting(
        60.0,
        _decimal,
        "Longest time since a proxy's `X-Request-Start` that is believed; 0: nobody's stamp is.",
    )
    flight_recorder: int = _setting(
        0,
        _integer,
        "How many of the last and of the slowest requests are kept in memory, without content, "
        "and shown to callers on this machine at `flight_recorder_path`; 0: none.",
    )
    flight_recorder_path: str = _setting(
        "/debug/llm_trace", str, "Where they are shown, as OTLP JSON for `llm-trace explain`."
    )
    tail_share: float = _setting(
        1.0,
        _decimal,
        "Share of ordinary requests whose traces are kept, 0 to 1. Slow (`slow_ttft`, else 4 s), "
        "failed, cancelled and cold ones are kept all; metrics count every one.",
    )
    shutdown_timeout: float = _setting(
        5.0, _decimal, "Seconds that the process may spend on sending the last spans at its end."
    )
    otlp_endpoint: str | None = _setting(
        None,
        str,
        "OTLP endpoint for spans and metrics; None: the `OTEL_EXPORTER_OTLP_*` variables.",
    )
    otlp_protocol: str | None = _setting(
        None, str, "`grpc` or `http/protobuf`; None: the `OTEL_EXPORTER_OTLP_*` variables."
    )

    benchmark: str | None = _setting(
        None,
        str,
        "File that `llm-trace bench --json` wrote: each request then carries the time to first "
        "token to be expected of its length. None: no expectation.",
    )

    def __post_init__(self) -> None:
        for name in _RULES:
            value = getattr(self, name)
            shown = HIDDEN if name in SECRETS else repr(value)
            _check(f"setting {name}={shown}", name, value)
        lists = ("served_models", "phases", "quiet_paths", "upstream_urls", "retrieval_stores")
        for name in lists:
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "routes", dict(self.routes))

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


SECRETS: Final = frozenset({"user_key"})
HIDDEN: Final = "(not shown)"
LEAST_KEY: Final = 16

MAX_TEXT_BYTES: Final = range(64, 65_537)
"""Bounds of captured content: a batch of spans must stay within what receivers take."""

MAX_TIMEOUT: Final = 3600
MAX_FLIGHTS: Final = 10_000


def _is_boolean(value: object) -> bool:
    return isinstance(value, bool)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_text_or_none(value: object) -> bool:
    return value is None or _is_text(value)


def _is_names(value: object) -> bool:
    return isinstance(value, tuple | list) and all(map(_is_text, value))


def _is_patterns(value: object) -> bool:
    return _is_names(value) and all(
        pattern.startswith(("/", "*")) or "://" in pattern
        for pattern in value  # type: ignore[attr-defined]
    )


def _is_integer(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_number(value: object, most: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= most


def _is_path(value: object) -> bool:
    return isinstance(value, str) and value.startswith("/")


def _is_routes(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        _is_path(path) and _is_text(operation) for path, operation in value.items()
    )


_RULES: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "enabled": (_is_boolean, "use true or false"),
    "provider": (_is_text, "name the provider, such as vllm"),
    "served_models": (_is_names, "use a list of model names"),
    "phases": (_is_names, "use a list of phase names"),
    "routes": (
        _is_routes,
        "each route needs a path that begins with / and an operation, such as /ask=chat",
    ),
    "quiet_paths": (_is_names, "use a list of path patterns"),
    "metrics_path": (
        lambda v: v == "" or _is_path(v),
        "begin the path with / or leave it empty",
    ),
    "rewrite_traceparent": (_is_boolean, "use true or false"),
    "upstream": (_is_boolean, "use true or false"),
    "upstream_urls": (
        _is_patterns,
        "each pattern begins with / for a path, or with a scheme, such as http://vllm:8000/*",
    ),
    "ledger_in_band": (_is_boolean, "use true or false"),
    "latency_attributes": (_is_boolean, "use true or false"),
    "max_attribute_bytes": (lambda v: _is_integer(v, 1), "use a whole number above 0"),
    "max_body_bytes": (lambda v: _is_integer(v, 0), "use a whole number of bytes, 0 or more"),
    "capture_content": (_is_boolean, "use true or false"),
    "max_content_bytes": (
        lambda v: _is_integer(v, MAX_TEXT_BYTES.start) and v in MAX_TEXT_BYTES,
        f"use a whole number from {MAX_TEXT_BYTES.start} to {MAX_TEXT_BYTES.stop - 1}",
    ),
    "user_key": (
        lambda v: v is None or (_is_text(v) and len(v) >= LEAST_KEY),
        f"use a secret of at least {LEAST_KEY} characters",
    ),
    "cached_share": (lambda v: _is_number(v, 1), "use a share above 0, up to 1"),
    "device": (_is_text_or_none, "name a device, such as H100 SXM"),
    "model_config": (_is_text_or_none, "name a model, its directory or its config.json"),
    "tensor_parallel": (lambda v: _is_integer(v, 1), "use a whole number above 0"),
    "slow_ttft": (
        lambda v: v is None or _is_number(v, MAX_TIMEOUT),
        f"use seconds above 0, up to {MAX_TIMEOUT}",
    ),
    "retrieval_stores": (_is_names, "use a list of database systems"),
    "max_edge_seconds": (
        lambda v: _is_number(v, MAX_TIMEOUT) or (v == 0 and not isinstance(v, bool)),
        f"use seconds, 0 to {MAX_TIMEOUT}",
    ),
    "flight_recorder": (
        lambda v: _is_integer(v, 0) and v <= MAX_FLIGHTS,
        f"use a whole number up to {MAX_FLIGHTS}",
    ),
    "flight_recorder_path": (_is_path, "begin the path with /"),
    "tail_share": (
        lambda v: _is_number(v, 1) or (v == 0 and not isinstance(v, bool)),
        "use a share from 0 to 1",
    ),
    "shutdown_timeout": (
        lambda v: _is_number(v, MAX_TIMEOUT),
        f"use seconds above 0, up to {MAX_TIMEOUT}",
    ),
    "otlp_endpoint": (
        lambda v: v is None or _is_text(v),
        "use a URL, such as http://collector:4317",
    ),
    "otlp_protocol": (
        lambda v: v is None or (isinstance(v, str) and v in {"grpc", "http/protobuf"}),
        "use grpc or http/protobuf",
    ),
    "benchmark": (lambda v: v is None or _is_text(v), "name a file, such as bench.json"),
}
"""For each setting, what its value must be and the advice where it is not."""


def _check(what: str, name: str, value: object) -> None:
    fits, advice = _RULES[name]
    if not fits(value):
        raise SettingsError(f"{what} cannot be used: {advice}.")


def _read(environ: Mapping[str, str], known: Mapping[str, Any]) -> dict[str, Any]:
    values = {}
    for variable, given in environ.items():
        if not variable.startswith(PREFIX) or _is_foreign(variable, given):
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name not in known:
            raise SettingsError(_unknown(f"environment variable {variable}", name, known, PREFIX))
        text = given.strip()
        if text or name in _EMPTY_SAYS:
            shown = HIDDEN if name in SECRETS else repr(given)
            values[name] = _parsed(f"{variable}={shown}", name, text, known)
    if "capture_content" not in values:
        values |= _standard(environ)
    return values


def _standard(environ: Mapping[str, str]) -> dict[str, Any]:
    """What the standard variable says of content; where it speaks of events, it is not of spans."""
    text = environ.get(CAPTURE, "").strip()
    if not text:
        return {}
    if text.lower() in _ON_SPANS | _TRUE:
        return {"capture_content": True}
    if text.lower() in _NOT_ON_SPANS | _FALSE:
        return {"capture_content": False}
    raise SettingsError(
        f"{CAPTURE}={text!r} cannot be used: use true or false, or one of span_only, "
        "span_and_event, event_only and no_content."
    )


def _is_foreign(variable: str, text: str) -> bool:
    link = _SERVICE_LINK.match(f"{variable.removeprefix(PREFIX)}={text}")
    return variable in FOREIGN or link is not None


def _parsed(what: str, name: str, text: str, known: Mapping[str, Any]) -> Any:
    try:
        value = known[name].metadata["parse"](text)
    except ValueError as error:
        raise SettingsError(f"{what} cannot be used: {error}.") from None
    _check(what, name, value)
    return value


def _unknown(what: str, name: str, known: Mapping[str, Any], prefix: str = "") -> str:
    near = difflib.get_close_matches(name, known, n=1)
    shown = [f"{prefix}{k.upper()}" if prefix else k for k in near or sorted(known)]
    hint = f"did you mean {shown[0]}?" if near else f"known are {', '.join(shown)}."
    return f"{what} is unknown: {hint}"
