"""Who exported telemetry is from: this process, and llm_trace in it."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Final
from uuid import uuid4

from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from llm_trace import semconv as s
from llm_trace._version import __version__

SCOPE: Final = InstrumentationScope(s.SCOPE, __version__, s.SCHEMA_URL)


def service_name() -> str:
    """What this process is called by, as its exported spans have it."""
    return str(Resource.create({}).attributes.get(SERVICE_NAME, ""))


def resource() -> Resource:
    """The resource of this process, told apart from others of its service by every SDK."""
    made = Resource.create({})
    if SERVICE_INSTANCE_ID in made.attributes:
        return made
    return made.merge(Resource({SERVICE_INSTANCE_ID: _instance(os.getpid())}))


@lru_cache(maxsize=1)
def _instance(pid: int) -> str:  # noqa: ARG001 - another process is another instance
    return str(uuid4())
