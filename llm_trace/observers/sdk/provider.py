"""A provider of the SDK: who takes finished spans, and what it tells of others'."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.trace import SpanKind, TraceState

from llm_trace.observers.sdk.finished import Limits, readable
from llm_trace.observers.sink import Trace

_TAKE_ALL: Final = ("AlwaysOnSampler", "ParentBased{root:AlwaysOnSampler,")
"""How samplers that take every trace that begins with them describe themselves."""
_ENGINES_OWN: Final = "vllm.instrumenting_module_name"
"""Resource key of the provider that vLLM sets for itself; request spans do not belong there."""


class ProviderSink:
    """A span sink over an SDK provider.

    Uses the provider's sampler, ids and resource, and hands finished spans to its processors:
    the one thing that the SDK has no public call for.
    """

    def __init__(self, provider: Any) -> None:
        self._provider = provider
        self._limits = Limits(provider)
        self.new_trace_id: Callable[[], int] = provider.id_generator.generate_trace_id
        self.new_span_id: Callable[[], int] = provider.id_generator.generate_span_id
        describe = getattr(provider.sampler, "get_description", str)
        self.takes_all = describe().startswith(_TAKE_ALL)

    def sample(
        self, parent: Context | None, trace_id: int, name: str, kind: SpanKind
    ) -> tuple[bool, TraceState | None]:
        """Ask the provider's sampler."""
        result = self._provider.sampler.should_sample(parent, trace_id, name, kind)
        return result.decision.is_sampled(), result.trace_state

    def emit(self, trace: Trace) -> None:
        """Hand the spans to the provider's processors."""
        on_end = self._provider._active_span_processor.on_end  # noqa: SLF001 - see the class
        resource = self._provider.resource
        for span in trace:
            on_end(readable(span, resource, self._limits))


def sink_of(provider: Any) -> ProviderSink | None:
    """A sink over `provider`, or None where it is no SDK provider, or the engine's own."""
    parts = ("sampler", "id_generator", "resource", "_active_span_processor")
    if not all(hasattr(provider, part) for part in parts):
        return None
    return None if _ENGINES_OWN in provider.resource.attributes else ProviderSink(provider)


class _Listener(SpanProcessor):
    """Tells of spans as they start and end."""

    def __init__(self, started: Callable[[Any], None], ended: Callable[[Any], None]) -> None:
        self._started = started
        self._ended = ended

    def on_start(self, span: Any, parent_context: Context | None = None) -> None:  # noqa: ARG002
        self._started(span)

    def on_end(self, span: ReadableSpan) -> None:
        self._ended(span)


def listen(provider: Any, started: Callable[[Any], None], ended: Callable[[Any], None]) -> None:
    """Hear of every span that `provider` records, from now on; of no SDK provider, nothing."""
    if hasattr(provider, "add_span_processor"):
        provider.add_span_processor(_Listener(started, ended))
