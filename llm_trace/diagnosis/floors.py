"""What is known of the engine beside a request's record: its roofline, its slots, its cache."""

from __future__ import annotations

from typing import NamedTuple

from llm_trace.core.record import CallRecord
from llm_trace.diagnosis.roofline import Roofline


class Floors(NamedTuple):
    """The engine that served a request, as far as settings or the engine itself said."""

    roofline: Roofline | None = None
    slots: int | None = None
    """Requests that the engine runs at once."""
    step_tokens: int | None = None
    """Tokens that one step computes at most."""
    prefix_caching: bool | None = None

    def prefill(self, tokens: int | None, cached: int | None) -> float | None:
        """Least ns to compute `tokens` behind `cached` ones; None where something is not known."""
        if self.roofline is None or not tokens:
            return None
        return self.roofline.prefill(tokens, cached or 0) * 1e9

    def step(self, call: CallRecord, output_tokens: int) -> float | None:
        """Least ns of a decode step of this request, whoever shared it.

        Only its own cache is counted: what the others kept is not known, and a floor errs low.
        """
        if self.roofline is None or call.usage.input_tokens is None:
            return None
        return self.roofline.decode_reading(1, call.usage.input_tokens + output_tokens / 2) * 1e9


UNKNOWN = Floors()
"""Nothing but the record."""
