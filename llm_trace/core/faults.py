"""Containment: a fault of llm_trace is counted and logged once, and never reaches the request.

Under pytest it is raised instead, so that containment can never hide our own bugs.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


def log() -> logging.Logger:
    """Our logger, asked for when it is used.

    Hosts configure logging for themselves: some disable all loggers that exist by then, and vLLM
    ends up with a root logger at ERROR. Neither speaks of us: a warning of ours is seen unless
    somebody sets the level of this very logger.
    """
    logger = logging.getLogger("llm_trace")
    logger.disabled = False
    if not logger.isEnabledFor(logging.WARNING) and logger.level == logging.NOTSET:
        logger.setLevel(logging.WARNING)
    return logger


internal: Counter[str] = Counter()
"""Contained faults by the place where they happened: `llm_trace.errors.internal`."""

dropped: Counter[str] = Counter()
"""Refused measurements by reason: `llm_trace.samples.dropped`."""

spans: Counter[str] = Counter()
"""Spans that were made and never exported, by reason: `llm_trace.spans.dropped`."""

_logged: set[tuple[str, str]] = set()
_MAX_LOGGED = 256
_production = False


def contain(place: str, error: Exception) -> None:
    """Count `error` at `place` and log it the first time; raise it under pytest."""
    if "PYTEST_CURRENT_TEST" in os.environ and not _production:
        raise error
    internal[place] += 1
    kind = (place, type(error).__name__)
    if kind in _logged or len(_logged) >= _MAX_LOGGED:
        return
    _logged.add(kind)
    log().warning(
        "llm_trace: fault in %s, contained: the request goes on, with less telemetry. "
        "Counted in llm_trace_errors_internal_total; logged once.",
        place,
        exc_info=error,
    )


def drop(reason: str) -> None:
    """Count a measurement that a bound or a rule refused."""
    dropped[reason] += 1


@contextmanager
def production() -> Iterator[None]:
    """Contain faults as in production while a test looks at containment itself."""
    global _production  # noqa: PLW0603 - one process-wide mode, only for tests
    before, _production = _production, True
    try:
        yield
    finally:
        _production = before
