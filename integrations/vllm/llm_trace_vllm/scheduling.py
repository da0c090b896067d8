"""Where `--scheduler-cls llm_trace_vllm.scheduler` leads: vLLM's own scheduler, with a teller.

An exception in a scheduler ends EngineCore and every request with it. So vLLM's own method always
runs first, with its own arguments and result; what is ours runs after it, contained, and at the
first fault it is over for the life of the engine.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from llm_trace.core import faults
from llm_trace_vllm.news import CARRIER
from llm_trace_vllm.teller import Teller


def scheduler(*args: Any, **kwargs: Any) -> Any:
    """Make the scheduler of an engine: vLLM calls it with what it gives any scheduler class.

    Returns:
        The scheduler that vLLM would have chosen for this configuration, asynchronous or not,
        which also tells the API process of chunks and of requests that have no output yet.
    """
    config = kwargs["vllm_config"] if "vllm_config" in kwargs else args[0]
    base = default_class(config)
    try:
        made = telling(base, new_teller())
    except Exception as error:  # noqa: BLE001 - vLLM must start
        faults.contain("vllm.scheduler", error)
        made = base
    return made(*args, **kwargs)


def default_class(vllm_config: Any) -> Any:
    """The scheduler class that vLLM would have chosen without `--scheduler-cls`."""
    if getattr(vllm_config, "diffusion_config", None) is not None:  # vLLM's rule, from 0.32 on
        from vllm.v1.core.sched import diffusion_scheduler as own  # noqa: PLC0415

        asynchronous = vllm_config.scheduler_config.async_scheduling
        return own.DiffusionAsyncScheduler if asynchronous else own.DiffusionScheduler
    unset = copy.copy(vllm_config.scheduler_config)
    object.__setattr__(unset, "scheduler_cls", None)  # pydantic would validate, or refuse
    return unset.get_scheduler_cls()


def new_teller() -> Teller:
    """A teller that writes with vLLM's own types."""
    from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs  # noqa: PLC0415
    from vllm.v1.request import RequestStatus  # noqa: PLC0415

    def carry(headers: dict[str, str]) -> Any:
        return EngineCoreOutput(request_id=CARRIER, new_token_ids=[], trace_headers=headers)

    loading = getattr(RequestStatus, "WAITING_FOR_REMOTE_KVS", None)
    return Teller(carry, lambda outputs: EngineCoreOutputs(outputs=outputs), loading=loading)


def telling(base: Any, teller: Teller) -> Any:
    """A subclass of `base` whose one instance reports to `teller`."""

    class TellingScheduler(base):  # type: ignore[misc]
        """vLLM's scheduler; see the module."""

        _llm_trace: Teller | None = teller

        def add_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
            result = super().add_request(request, *args, **kwargs)
            self._tell(lambda tell: _added(tell, self.requests, request))
            return result

        def schedule(self, *args: Any, **kwargs: Any) -> Any:
            start = teller.now()
            result = super().schedule(*args, **kwargs)
            self._tell(lambda tell: _scheduled(tell, self, result, start))
            return result

        def update_from_output(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            result = super().update_from_output(scheduler_output, *args, **kwargs)
            self._tell(lambda tell: _updated(tell, self, scheduler_output, result))
            return result

        def _tell(self, tell: Callable[[Teller], None]) -> None:
            if self._llm_trace is None:
                return
            try:
                tell(self._llm_trace)
            except Exception as error:  # noqa: BLE001 - see the module
                self._llm_trace = None
                faults.contain("vllm.scheduler", error)

    TellingScheduler.__name__ = TellingScheduler.__qualname__ = f"Telling{base.__name__}"
    return TellingScheduler


def _added(teller: Teller, requests: Any, request: Any) -> None:
    """A further turn of a streaming session comes as a request that the scheduler does not keep."""
    if requests.get(request.request_id) is request:
        teller.added(request)


def _scheduled(teller: Teller, scheduler: Any, output: Any, start: float) -> None:
    if getattr(scheduler, "connector", None) is not None:  # else nothing comes from elsewhere
        teller.loading(start)
    teller.scheduled(output, start)


def _updated(teller: Teller, scheduler: Any, output: Any, outputs: Any) -> None:
    arrived = getattr(scheduler, "finished_recving_kv_req_ids", None)
    if arrived:
        teller.arrived(arrived)
    teller.updated(output, outputs)
