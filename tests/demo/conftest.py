"""What the demo's tests share."""

import pytest

from llm_trace.demo.ports import choose


@pytest.fixture
def unused_port():
    """A port on which nobody listens."""
    return choose(0, "")
