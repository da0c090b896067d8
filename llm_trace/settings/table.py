"""The table of settings: for each its type, its default, what its value must be, what it does."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from llm_trace.settings import environment, kinds
from llm_trace.settings.defaults import QUIET_PATHS, RETRIEVAL_STORES
from llm_trace.settings.refusals import unknown
from llm_trace.settings.row import check, row, secret, shown

LEAST_TEXT_BYTES: Final = 64
MOST_TEXT_BYTES: Final = 65_536
"""Bounds of captured content: a batch of spans must stay within what receivers take."""

LEAST_KEY: Final = 16
MAX_TIMEOUT: Final = 3600
MAX_FLIGHTS: Final = 10_000


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings; each is a keyword of `instrument()` and a variable `LLM_TRACE_<NAME>`.

    Raises:
        SettingsError: A value cannot be used; the message says what to do.
    """

    enabled: bool = row(True, kinds.BOOLEAN, "False leaves the app untouched.")
    provider: str = row(
        "vllm",
        kinds.name("name the provider, such as vllm"),
        "`gen_ai.provider.name` of spans and metrics.",
    )
    served_models: tuple[str, ...] = row(
        (),
        kinds.names("use a list of model names"),
        "Models that metrics name; others count as `other`. Empty: the models that the engine "
        "says it serves, and up to 32 that answered with tokens.",
    )
    phases: tuple[str, ...] = row(
        (),
        kinds.names("use a list of phase names"),
        "Names given to `phase()` that metrics may use as labels; others: `other`.",
    )
    routes: Mapping[str, str] = row(
        {},
        kinds.ROUTES,
        "Generation routes beside the well-known ones: path suffix to `gen_ai.operation.name`.",
    )
    quiet_paths: tuple[str, ...] = row(
        QUIET_PATHS,
        kinds.names("use a list of path patterns"),
        "Path patterns (`*` allowed) that are neither traced nor counted.",
    )
    metrics_path: str = row(
        "/metrics",
        kinds.or_empty(kinds.path("begin the path with / or leave it empty")),
        "Where `instrument()` serves Prometheus metrics; empty: nowhere.",
    )
    rewrite_traceparent: bool = row(
        True,
        kinds.BOOLEAN,
        "Make spans of inner instrumentation children of ours by the request's headers.",
    )
    upstream: bool = row(
        True,
        kinds.BOOLEAN,
        "Trace the app's own calls of engines over HTTP, made with httpx, openai or aiohttp.",
    )
    upstream_urls: tuple[str, ...] = row(
        (),
        kinds.URL_PATTERNS,
        "URL patterns (`*` allowed; `/…` means a path) that are calls of engines. Empty: the "
        "well-known generation routes of any host.",
    )
    ledger_in_band: bool = row(
        True,
        kinds.BOOLEAN,
        "Tell a caller that asks for it, by `x-llm-trace-ledger: 1`, this server's phases; and "
        "ask the engines that the app calls for theirs.",
    )
    latency_attributes: bool = row(
        True, kinds.BOOLEAN, "Put the `gen_ai.latency.*` keys of vLLM and SGLang on the root span."
    )
    max_attribute_bytes: int = row(
        1024,
        kinds.integer("use a whole number above 0", least=1),
        "Longer string attributes are cut at a character, in UTF-8 bytes.",
    )
    max_body_bytes: int = row(
        65_536,
        kinds.integer("use a whole number of bytes, 0 or more", least=0),
        "Request and JSON answer bytes looked at for model and usage; 0: none.",
    )
    capture_content: bool = row(
        False,
        kinds.BOOLEAN,
        "Put what was asked and answered on the root span, never anywhere else. Also by "
        "`OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`.",
    )
    max_content_bytes: int = row(
        4096,
        kinds.integer(
            f"use a whole number from {LEAST_TEXT_BYTES} to {MOST_TEXT_BYTES}",
            least=LEAST_TEXT_BYTES,
            most=MOST_TEXT_BYTES,
        ),
        "Captured content is cut at so many UTF-8 bytes, question and answer each.",
    )
    user_key: str | None = secret(
        kinds.or_none(
            kinds.text(f"use a secret of at least {LEAST_KEY} characters", least=LEAST_KEY)
        ),
        "Key by which `llm_trace.user()` hashes who asks. None: nothing of a user is kept.",
    )
    cached_share: float = row(
        0.8,
        kinds.number("use a share above 0, up to 1", most=1),
        "Cached share of the prompt from which a request counts as `cached`.",
    )
    device: str | None = row(
        None,
        kinds.or_none(kinds.text("name a device, such as H100 SXM")),
        "Accelerator that the engine runs on, such as `H100 SXM`, or `TFLOP/s:TB/s` of another: "
        "with `model_config` each request is compared with its floors. Inside vLLM both are known.",
    )
    model_config: str | None = row(
        None,
        kinds.or_none(kinds.text("name a model, its directory or its config.json")),
        "The served model's directory, its `config.json`, or a public name.",
    )
    tensor_parallel: int = row(
        1,
        kinds.integer("use a whole number above 0", least=1),
        "Devices that share one copy of the model.",
    )
    slow_ttft: float | None = row(
        None,
        kinds.or_none(kinds.number(f"use seconds above 0, up to {MAX_TIMEOUT}", most=MAX_TIMEOUT)),
        "Seconds to the first token, or to the end without one, from which a request is logged "
        "with its verdict, at most one a second. None: none is.",
    )
    retrieval_stores: tuple[str, ...] = row(
        RETRIEVAL_STORES,
        kinds.names("use a list of database systems"),
        "Database systems (`db.system.name`) whose client spans count as retrieval: searches in "
        "vector stores, and in general ones those that show a vector or full-text search.",
    )
    max_edge_seconds: float = row(
        60.0,
        kinds.or_zero(kinds.number(f"use seconds, 0 to {MAX_TIMEOUT}", most=MAX_TIMEOUT)),
        "Longest time since a proxy's `X-Request-Start` that is believed; 0: nobody's stamp is.",
    )
    flight_recorder: int = row(
        0,
        kinds.integer(f"use a whole number up to {MAX_FLIGHTS}", least=0, most=MAX_FLIGHTS),
        "How many of the last and of the slowest requests are kept in memory, without content, "
        "and shown to callers on this machine at `flight_recorder_path`; 0: none.",
    )
    flight_recorder_path: str = row(
        "/debug/llm_trace",
        kinds.path("begin the path with /"),
        "Where they are shown, as OTLP JSON for `llm-trace explain`.",
    )
    tail_share: float = row(
        1.0,
        kinds.or_zero(kinds.number("use a share from 0 to 1", most=1)),
        "Share of ordinary requests whose traces are kept, 0 to 1. Slow (`slow_ttft`, else 4 s), "
        "failed, cancelled and cold ones are kept all; metrics count every one.",
    )
    shutdown_timeout: float = row(
        5.0,
        kinds.number(f"use seconds above 0, up to {MAX_TIMEOUT}", most=MAX_TIMEOUT),
        "Seconds that the process may spend on sending the last spans at its end.",
    )
    otlp_endpoint: str | None = row(
        None,
        kinds.or_none(kinds.text("use a URL, such as http://collector:4317")),
        "OTLP endpoint for spans and metrics; None: the `OTEL_EXPORTER_OTLP_*` variables.",
    )
    otlp_protocol: str | None = row(
        None,
        kinds.or_none(kinds.word("use grpc or http/protobuf", "grpc", "http/protobuf")),
        "`grpc` or `http/protobuf`; None: the `OTEL_EXPORTER_OTLP_*` variables.",
    )
    benchmark: str | None = row(
        None,
        kinds.or_none(kinds.text("name a file, such as bench.json")),
        "File that `llm-trace bench --json` wrote: each request then carries the time to first "
        "token to be expected of its length. None: no expectation.",
    )

    def __post_init__(self) -> None:
        for setting in fields(self):
            value = getattr(self, setting.name)
            check(setting, value, f"setting {setting.name}={shown(setting, value)}")
            object.__setattr__(self, setting.name, setting.metadata["kind"].own(value))

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **given: Any) -> Settings:
        """Settings from `LLM_TRACE_*`, with keywords beating the environment.

        Raises:
            SettingsError: An unknown name or a value that cannot be used.
        """
        known = {setting.name: setting for setting in fields(cls)}
        values = environment.values(os.environ if environ is None else environ, known)
        for name in given:
            if name not in known:
                raise unknown(f"setting {name!r}", name, known)
        return cls(**{**values, **given})


SECRETS: Final = frozenset(setting.name for setting in fields(Settings) if not setting.repr)
