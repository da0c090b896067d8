"""What vLLM loads by entry point: keeps its statistics on, and hands the join what they say.

vLLM calls `record` after every engine step, in the event loop of the API server; an exception there
would end every request, so everything is contained.
"""

from __future__ import annotations

import time
from collections.abc import MutableMapping, Sized
from typing import Any, Final

try:
    from vllm.v1.metrics.loggers import AggregateStatLoggerBase as _Base
except ImportError:  # before vLLM had one logger for all engines
    from vllm.v1.metrics.loggers import StatLoggerBase as _Base

from llm_trace.core import engines, faults
from llm_trace_vllm import fallback
from llm_trace_vllm.description import describe
from llm_trace_vllm.facts import served_names
from llm_trace_vllm.join import Join
from llm_trace_vllm.joined import join_engine, joins, loggers
from llm_trace_vllm.tiers import ENGINE_EVENTS, FINISHED_STATS, STATS_SWEEP

_now = time.monotonic_ns  # noqa: TID251 - stamps beside the engine's; no fake clock runs in vLLM
_MAX_FAULTS: Final = 8


class LedgerStatLogger(_Base):  # type: ignore[misc]  # vLLM is absent where types are checked
    """Installs the join at the server's first request, and feeds it.

    Args:
        vllm_config: vLLM's configuration; its served model names become safe metric labels.
        engine_indexes: Which engines it logs.
    """

    def __init__(self, vllm_config: Any, engine_indexes: Any = 0) -> None:
        self.engine_indexes = engine_indexes
        self.vllm_config = vllm_config
        self._join: Join | None = None
        self._faults = 0
        loggers.add(self)
        try:
            engines.served_models.update(served_names(vllm_config))
            engines.describe(describe(vllm_config))
            engines.on_first_request(self.meet)
        except Exception as error:  # noqa: BLE001 - vLLM must start
            faults.contain("vllm.stat_logger", error)

    def meet(self, scope: MutableMapping[str, Any]) -> None:
        """Join the engine of the server that `scope` belongs to."""
        state = getattr(scope.get("app"), "state", None)
        engine = getattr(state, "engine_client", None)
        if engine is None:
            _say_unjoined()
            return
        self.serve(join_engine(engine))

    def serve(self, join: Join) -> None:
        """Feed `join`, and say where its tier is not the best."""
        self._join = join
        if isinstance(self.engine_indexes, Sized):
            join.ranks = max(1, len(self.engine_indexes))
        if join.tier != ENGINE_EVENTS:
            faults.log().warning(
                "llm_trace: this vLLM does not offer the surfaces that engine events come from; "
                "the tier is %s. See docs/vllm.md.",
                join.tier,
            )

    def record(
        self,
        scheduler_stats: Any = None,
        iteration_stats: Any = None,
        *_args: Any,
        engine_idx: int | None = None,
        **_kwargs: Any,
    ) -> None:
        """One engine step is over."""
        join = self._join
        if join is None or self._faults >= _MAX_FAULTS:
            return
        try:
            if join.tier == ENGINE_EVENTS:
                join.reported(scheduler_stats, engine_idx or 0)
            elif join.tier == STATS_SWEEP:
                fallback.sweep(join.processor)
            elif join.tier == FINISHED_STATS and iteration_stats is not None:
                fallback.finished(iteration_stats.finished_requests, _now())
        except Exception as error:  # noqa: BLE001 - see the module
            self._faults += 1
            faults.contain("vllm.record", error)

    def record_sleep_state(
        self, sleep: int = 0, level: int = 0, *_args: Any, **_kwargs: Any
    ) -> None:
        """The engine sleeps, or woke up; at level 0 it pauses only, and nothing will be loaded."""
        try:
            if self._join is not None and not (sleep and level == 0):
                self._join.slept(asleep=bool(sleep))
        except Exception as error:  # noqa: BLE001 - see the module
            faults.contain("vllm.sleep", error)

    def log_engine_initialized(self) -> None:
        """Nothing to say: vLLM's own loggers say it."""


def _say_unjoined() -> None:
    """Warn of a server whose engine nobody can see, unless its app joined it by hand."""
    if not joins:
        faults.log().warning(
            "llm_trace: this server's app.state has no engine_client, so the engine's time stays "
            "unattributed. An app that embeds AsyncLLM calls llm_trace_vllm.trace(engine)."
        )
