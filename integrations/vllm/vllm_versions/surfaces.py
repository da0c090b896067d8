"""Every name of vLLM that the integration touches: one table, which code and docs are held to.

A *surface* is a class, a field, a method with its leading arguments, or a line of code that must be
somewhere. A *feature* is what users get out of some surfaces; where one is missing in a version of
vLLM they get less, and never an error. To touch a new name of vLLM, add it here first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

Facts = Mapping[str, Any]
"""What `extract` found in one version: classes by `path:Name`, and lines by key."""

ENGINE: Final = "vllm/v1/engine/__init__.py"
OUTPUT: Final = "vllm/v1/engine/output_processor.py"
CORE_CLIENT: Final = "vllm/v1/engine/core_client.py"
SAMPLING: Final = "vllm/sampling_params.py"
ASYNC_LLM: Final = "vllm/v1/engine/async_llm.py"
STATS: Final = "vllm/v1/metrics/stats.py"
LOGGERS: Final = "vllm/v1/metrics/loggers.py"
SCHEDULER: Final = "vllm/v1/core/sched/scheduler.py"
ASYNC_SCHEDULER: Final = "vllm/v1/core/sched/async_scheduler.py"
STEP: Final = "vllm/v1/core/sched/output.py"
REQUEST: Final = "vllm/v1/request.py"
CONFIG: Final = "vllm/config/scheduler.py"
LORA: Final = "vllm/lora/request.py"


class Field(NamedTuple):
    """A field, property or attribute that instances of a class have; a member, by its name."""

    path: str
    owner: str
    name: str

    def __str__(self) -> str:
        return f"{self.owner}.{self.name}"

    def holds(self, facts: Facts) -> bool:
        """Whether a version has it."""
        found = facts["classes"].get(f"{self.path}:{self.owner}", {})
        return self.name in found.get("fields", ()) or self.name in found.get("methods", ())


class Method(NamedTuple):
    """A method, whose first arguments are passed by position or have these names."""

    path: str
    owner: str
    name: str
    arguments: tuple[str, ...]
    keywords: tuple[str, ...] = ()
    """Further ones that are passed by name."""

    def __str__(self) -> str:
        words = (*self.arguments, *(f"{word}=" for word in self.keywords))
        return f"{self.owner}.{self.name}({', '.join(words)})"

    def holds(self, facts: Facts) -> bool:
        """Whether a version has it, with these arguments."""
        methods = facts["classes"].get(f"{self.path}:{self.owner}", {}).get("methods", {})
        given = methods.get(self.name)
        if given is None or not set(self.keywords) <= set(given):
            return False
        return tuple(given[1 : len(self.arguments) + 1]) == self.arguments


class Value(NamedTuple):
    """A member of an enumeration, by its number."""

    path: str
    owner: str
    name: str
    value: int

    def __str__(self) -> str:
        return f"{self.owner}.{self.name} = {self.value}"

    def holds(self, facts: Facts) -> bool:
        """Whether it has this number in a version."""
        found = facts["classes"].get(f"{self.path}:{self.owner}", {})
        return bool(found.get("values", {}).get(self.name) == self.value)


class Class(NamedTuple):
    """A class that is subclassed or made."""

    path: str
    owner: str

    def __str__(self) -> str:
        return self.owner

    def holds(self, facts: Facts) -> bool:
        """Whether a version has it."""
        return f"{self.path}:{self.owner}" in facts["classes"]


class Line(NamedTuple):
    """A line of code that is somewhere below a folder; vLLM moves such files about."""

    key: str
    folder: str
    pattern: str
    """A regular expression."""
    meaning: str

    def __str__(self) -> str:
        return self.meaning

    def holds(self, facts: Facts) -> bool:
        """Whether a version has it."""
        return self.key in facts["lines"]


Surface = Field | Method | Value | Class | Line
Way = tuple[Surface, ...]
"""Surfaces that together give a feature."""


def fields(path: str, owner: str, *names: str) -> tuple[Field, ...]:
    """Several fields of one class."""
    return tuple(Field(path, owner, name) for name in names)


class Feature(NamedTuple):
    """What users get, and any of the sets of surfaces that gives it."""

    name: str
    ways: tuple[Way, ...]

    def holds(self, facts: Facts) -> bool:
        """Whether a version gives it."""
        return any(all(surface.holds(facts) for surface in way) for way in self.ways)


MIDDLEWARE: Final = Line(
    "middleware", "vllm/entrypoints", r"^\s+middleware: list\[str\]", "the option `--middleware`"
)
ENGINE_CLIENT: Final = Line(
    "engine_client",
    "vllm/entrypoints",
    r"^\s+state\.engine_client = engine_client",
    "`app.state.engine_client`",
)
REQUEST_METADATA: Final = Line(
    "request_metadata",
    "vllm/entrypoints",
    r"^\s+raw_request\.state\.request_metadata = ",
    "`request.state.request_metadata`",
)
PLUGIN_GROUP: Final = Line(
    "stat_logger_plugins",
    "vllm",
    r'"vllm\.stat_logger_plugins"',
    "the entry point group `vllm.stat_logger_plugins`",
)
PASSES_OVER: Final = Line(
    "passes_over",
    "vllm/v1/engine",
    r"^\s+if req_state is None:\n(\s+#.*\n)*\s+continue",
    "an output processor that passes over unknown requests",
)

STAT_LOGGER: Final[Way] = (
    PLUGIN_GROUP,
    Class(LOGGERS, "StatLoggerBase"),
    Class(LOGGERS, "AggregateStatLoggerBase"),
    Method(LOGGERS, "StatLoggerBase", "record", ("scheduler_stats", "iteration_stats")),
    Method(LOGGERS, "AggregateStatLoggerBase", "__init__", ("vllm_config", "engine_indexes")),
)
REACHED: Final[Way] = (
    MIDDLEWARE,
    ENGINE_CLIENT,
    *fields(ASYNC_LLM, "AsyncLLM", "output_processor"),
)
EVENTS: Final[Way] = (
    Method(
        OUTPUT,
        "OutputProcessor",
        "add_request",
        ("request", "prompt", "parent_req", "request_index"),
    ),
    Method(
        OUTPUT,
        "OutputProcessor",
        "process_outputs",
        ("engine_core_outputs", "engine_core_timestamp"),
    ),
    *fields(ENGINE, "EngineCoreRequest", "request_id"),
    *fields(ENGINE, "EngineCoreOutput", "request_id", "new_token_ids", "events", "finish_reason"),
    *fields(ENGINE, "EngineCoreEvent", "type", "timestamp"),
    Value(ENGINE, "EngineCoreEventType", "QUEUED", 1),
    Value(ENGINE, "EngineCoreEventType", "SCHEDULED", 2),
    Value(ENGINE, "EngineCoreEventType", "PREEMPTED", 3),
)
SWEEP: Final[Way] = (
    *fields(OUTPUT, "OutputProcessor", "request_states"),
    *fields(OUTPUT, "RequestState", "request_id", "stats"),
    *fields(
        STATS, "RequestStateStats", "queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts"
    ),
    REQUEST_METADATA,
)
FINISHED: Final[Way] = (
    *fields(STATS, "IterationStats", "finished_requests"),
    *fields(
        STATS,
        "FinishedRequestStats",
        *("request_id", "queued_time", "prefill_time", "decode_time"),
        *("num_prompt_tokens", "num_generation_tokens"),
    ),
    REQUEST_METADATA,
)
TELLS: Final[Way] = (
    PASSES_OVER,
    *fields(CONFIG, "SchedulerConfig", "scheduler_cls", "async_scheduling", "get_scheduler_cls"),
    Class(ASYNC_SCHEDULER, "AsyncScheduler"),
    Method(SCHEDULER, "Scheduler", "__init__", ("vllm_config",)),
    Method(SCHEDULER, "Scheduler", "add_request", ("request",)),
    Method(SCHEDULER, "Scheduler", "schedule", ()),
    Method(SCHEDULER, "Scheduler", "update_from_output", ("scheduler_output",)),
    *fields(SCHEDULER, "Scheduler", "requests"),
    *fields(
        STEP, "SchedulerOutput", "num_scheduled_tokens", "scheduled_new_reqs", "finished_req_ids"
    ),
    *fields(STEP, "NewRequestData", "req_id"),
    *fields(
        REQUEST,
        "Request",
        *("request_id", "client_index", "events", "num_prompt_tokens", "num_computed_tokens"),
        *("num_output_tokens", "is_finished"),
    ),
    *fields(ENGINE, "EngineCoreOutput", "trace_headers"),
    *fields(ENGINE, "EngineCoreOutputs", "outputs", "timestamp"),
)
TRANSFERS: Final[Way] = (
    *fields(SCHEDULER, "Scheduler", "connector", "finished_recving_kv_req_ids"),
    *fields(REQUEST, "Request", "status"),
    *fields(REQUEST, "RequestStatus", "WAITING_FOR_REMOTE_KVS"),
)

BATCH: Final[Way] = fields(STATS, "SchedulerStats", "num_running_reqs", "num_waiting_reqs")
INFERRED: Final[Way] = (
    *BATCH,
    *fields(OUTPUT, "OutputProcessor", "request_states"),
    *fields(ASYNC_LLM, "AsyncLLM", "vllm_config", "engine_core"),
    *fields("vllm/config/vllm.py", "VllmConfig", "scheduler_config"),
    *fields(CONFIG, "SchedulerConfig", "policy"),
    *fields(CORE_CLIENT, "AsyncMPClient", "client_count"),
)

FEATURES: Final = (
    Feature("middleware and metrics on vLLM's own page", ((MIDDLEWARE,),)),
    Feature(
        "`engine-events`: every stamp and token of the engine, by internal id",
        ((*STAT_LOGGER, *REACHED, *EVENTS),),
    ),
    Feature(
        "`stats-sweep`, where that fails: the stamps of live requests",
        ((*STAT_LOGGER, *REACHED, *SWEEP),),
    ),
    Feature(
        "`finished-stats`, where both fail: durations of finished requests",
        ((*STAT_LOGGER, MIDDLEWARE, *FINISHED),),
    ),
    Feature(
        "cached prompt tokens, and so the start state",
        (
            (
                *fields(ENGINE, "EngineCoreOutput", "prefill_stats"),
                *fields(STATS, "PrefillStats", "num_cached_tokens"),
            ),
            fields(ENGINE, "EngineCoreOutput", "num_cached_tokens"),
        ),
    ),
    Feature(
        "prompt tokens from the cache of another engine",
        (
            (
                *fields(ENGINE, "EngineCoreOutput", "prefill_stats"),
                *fields(STATS, "PrefillStats", "num_external_cached_tokens"),
            ),
        ),
    ),
    Feature(
        "the batch at the first schedule: requests running and waiting, KV cache in use",
        ((*BATCH, *fields(STATS, "SchedulerStats", "kv_cache_usage")),),
    ),
    Feature(
        "who waits and who computes before any output, inferred from the engine's counts",
        (INFERRED,),
    ),
    Feature(
        "requests that wait for something else than room, apart",
        (fields(STATS, "SchedulerStats", "num_skipped_waiting_reqs"),),
    ),
    Feature(
        "the end of embedding and pooling requests",
        (fields(ENGINE, "EngineCoreOutput", "pooling_output"),),
    ),
    Feature(
        "data-parallel rank",
        ((Method(LOGGERS, "StatLoggerBase", "record", ("scheduler_stats",), ("engine_idx",)),),),
    ),
    Feature(
        "the leg of a request whose prefill and decode are on different engines",
        (
            (
                *fields(ENGINE, "EngineCoreRequest", "sampling_params"),
                *fields(SAMPLING, "SamplingParams", "extra_args"),
            ),
        ),
    ),
    Feature(
        "the end by a stop string, which vLLM finds outside the engine",
        (fields(OUTPUT, "OutputProcessorOutput", "reqs_to_abort"),),
    ),
    Feature(
        "answers that are aborted by their ids, as errors in every dialect",
        ((Method(OUTPUT, "OutputProcessor", "abort_requests", ("request_ids",)),),),
    ),
    Feature(
        "sleep and wake-up as model load",
        ((Method(LOGGERS, "StatLoggerBase", "record_sleep_state", ()),),),
    ),
    Feature(
        "length of the prompt and name of the adapter",
        (
            (
                *fields(ENGINE, "EngineCoreRequest", "prompt_token_ids", "prompt_embeds"),
                *fields(ENGINE, "EngineCoreRequest", "lora_request"),
                Field(LORA, "LoRARequest", "lora_name"),
            ),
        ),
    ),
    Feature(
        "whether a request on a route of no known kind generates or embeds",
        (fields(ENGINE, "EngineCoreRequest", "pooling_params"),),
    ),
    Feature(
        "equal request ids of two clients kept apart in every tier",
        (fields(OUTPUT, "RequestState", "external_req_id"),),
    ),
    Feature(
        "chunks of the prompt, and stamps of requests without output (`--scheduler-cls`)",
        (TELLS,),
    ),
    Feature(
        "the transfer of the KV cache as an interval of its own (`--scheduler-cls`)",
        ((*TELLS, *TRANSFERS),),
    ),
)


def every_surface() -> tuple[Surface, ...]:
    """Each surface of the table once, in its order."""
    ways = [way for feature in FEATURES for way in feature.ways]
    return tuple(dict.fromkeys(surface for way in ways for surface in way))
