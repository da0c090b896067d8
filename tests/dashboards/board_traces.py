"""Roots of real traces, and a stand-in for Tempo that finds them by the boards' own TraceQL.

It knows as much of the language as `dashboards.traceql` writes: conditions that all must hold, and
the attributes to show.
"""

from __future__ import annotations

import operator
import re
from itertools import count
from typing import NamedTuple

from board_traffic import JUDGE

from llm_trace.observers.spans import SpanObserver
from llm_trace.observers.tracer import OtelTracer

_QUERY = re.compile(r"\{ (.+) \} \| select\((.+)\)")
_CONDITION = re.compile(r'span\.(\S+) (=|=~|>) (?:"([^"]*)"|([\d.]+))')


class Root(NamedTuple):
    """The root of one trace."""

    trace: int
    at: int
    """Unix seconds."""
    name: str
    seconds: float
    attributes: dict


class Traces:
    """A provider as far as finished spans need one; every request is a trace of its own."""

    def __init__(self):
        self.roots = []
        self.at = 0
        self._ids = count(0x3A7E51)

    def new_trace_id(self):
        """The next trace; they look like random ones."""
        return next(self._ids) * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128

    def new_span_id(self):
        """The next span."""
        return next(self._ids)

    def sample(self, parent, trace_id, name, kind):
        """Yes."""
        return True, None

    def emit(self, trace):
        """Keep a root."""
        for span in trace:
            self._keep(span)

    def _keep(self, span):
        if span.parent is None:
            seconds = (span.end - span.start) / 1e9
            trace = span.context.trace_id
            root = Root(trace, self.at, span.name, seconds, dict(span.attributes))
            self.roots.append(root)

    def tracer(self):
        """A tracer over this sink."""
        return OtelTracer(lambda: self)

    def observer(self):
        """An observer that makes spans for this sink."""
        return SpanObserver(lambda: self, limit=1024, latency=False, judge=JUDGE)


def find(query, roots):
    """The roots that the query finds, and the attributes that it shows."""
    conditions, columns = _QUERY.fullmatch(query).groups()
    tests = [_CONDITION.fullmatch(each).groups() for each in conditions.split(" && ")]
    found = [root for root in roots if all(_holds(root.attributes, *test) for test in tests)]
    return found, [column.removeprefix("span.") for column in columns.split(", ")]


def _holds(attributes, name, compare, text, number):
    """Whether an attribute is there, has the type that is asked for, and the value."""
    value = attributes.get(name)
    if isinstance(value, str) and text is not None:
        return bool(re.fullmatch(text, value)) if compare == "=~" else value == text
    if isinstance(value, (int, float)) and number is not None:
        return {">": operator.gt, "=": operator.eq}[compare](value, float(number))
    return False
