"""What we say inside vLLM is seen: its API server ends up with a root logger at ERROR."""

import logging
from collections import Counter

import pytest

from llm_trace.core import faults


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    """Our logger as it was, and nothing logged yet."""
    monkeypatch.setattr(faults, "internal", Counter())
    monkeypatch.setattr(faults, "_logged", set())
    logger, root = logging.getLogger("llm_trace"), logging.getLogger()
    before = (logger.level, logger.disabled, root.level)
    yield
    logger.setLevel(before[0])
    logger.disabled = before[1]
    root.setLevel(before[2])


def contained():
    """Contain a fault as in production."""
    with faults.production():
        faults.contain("finish", ValueError("a bug of ours"))


def test_a_root_logger_at_error_does_not_silence_us(caplog):
    """It was set for others; a contained fault is still said once."""
    logging.getLogger().setLevel(logging.ERROR)
    contained()

    assert ["llm_trace"] == [record.name for record in caplog.records]


def test_a_configuration_that_disables_loggers_does_not_silence_us(caplog):
    """`dictConfig` disables, by default, every logger that exists by then."""
    logging.getLogger("llm_trace").disabled = True
    contained()

    assert len(caplog.records) == 1


def test_a_level_of_our_own_logger_is_respected(caplog):
    """Whoever names us is obeyed."""
    logging.getLogger("llm_trace").setLevel(logging.ERROR)
    contained()

    assert caplog.records == []
    assert Counter(finish=1) == faults.internal


def test_a_usual_root_logger_leaves_our_level_alone():
    """Where warnings pass anyway nothing is set."""
    logging.getLogger().setLevel(logging.WARNING)
    logging.getLogger("llm_trace").setLevel(logging.NOTSET)

    assert faults.log().level == logging.NOTSET
