"""OTLP as receivers that are not ours understood it: one form of a span, whoever received it."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field

from programs import Program, eventually, free_port, listens

from llm_trace import semconv as s

SERVER = 2


@dataclass(frozen=True)
class Span:
    """One received span."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: int
    start: int
    end: int
    failed: bool
    attributes: dict = field(default_factory=dict)

    @property
    def is_root(self):
        """Whether it is llm_trace's span of a whole request."""
        return s.OUTCOME in self.attributes


def value_of(any_value):
    """A value in OTLP's JSON form."""
    kind, value = next(iter(any_value.items()), ("", None))
    if kind == "intValue":
        return int(value)
    if kind == "arrayValue":
        return [value_of(item) for item in value.get("values", [])]
    return value


def span_of(document):
    """A span in OTLP's JSON form."""
    return Span(
        document["traceId"],
        document["spanId"],
        document.get("parentSpanId", ""),
        document["name"],
        document["kind"],
        int(document["startTimeUnixNano"]),
        int(document["endTimeUnixNano"]),
        document.get("status", {}).get("code") == 2,
        {pair["key"]: value_of(pair["value"]) for pair in document["attributes"]},
    )


class Traces:
    """What has arrived, asked for by trace; subclasses say where spans come from."""

    def spans(self):
        """Every span so far."""
        raise NotImplementedError

    def trace(self, trace_id):
        """The spans of one trace so far."""
        return [span for span in self.spans() if span.trace_id == trace_id]

    def trace_with(self, trace_id, roots, *, within=20.0):
        """The spans of a trace through several servers, once the roots of all are there."""

        def whole():
            spans = self.trace(trace_id)
            return spans if sum(span.is_root for span in spans) >= roots else None

        return eventually(
            whole,
            f"{roots} root spans of trace {trace_id} did not arrive",
            within=within,
        )

    def root(self, trace_id, *, within=20.0):
        """The root of a trace, once it is there; fails on a second one."""
        found = eventually(
            lambda: [span for span in self.trace(trace_id) if span.is_root],
            f"no root span of trace {trace_id} arrived",
            within=within,
        )
        assert len(found) == 1
        return found[0]


class OtelTap(Traces):
    """The `oteltap` receiver in a process of its own: OTLP over HTTP, one JSON line an item."""

    def __init__(self, folder):
        self.port = free_port()
        command = (sys.executable, "-m", "oteltap", "--port", self.port)
        self.program = Program(command, folder / "oteltap.log")
        self.program.ready(lambda: listens(self.port), "oteltap")
        self._offset = 0
        self._items = []

    @property
    def endpoint(self):
        """What OTEL_EXPORTER_OTLP_ENDPOINT is to be."""
        return f"http://127.0.0.1:{self.port}"

    def _read(self):
        with self.program.log.open("rb") as log:
            log.seek(self._offset)
            lines = log.read().rpartition(b"\n")[0]
        self._offset += len(lines) + 1 if lines else 0
        self._items += [json.loads(x) for x in lines.splitlines() if x.startswith(b"{")]
        return self._items

    def spans(self):
        """Every span so far."""
        return [span_of(item) for item in self._read() if "spanId" in item]

    def metrics(self):
        """The latest form of every metric, by its OTLP name."""
        return {item["name"]: item for item in self._read() if "spanId" not in item}

    def stop(self):
        """End it."""
        self.program.stop()
