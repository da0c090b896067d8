"""Field report 18: a process that forks after it was instrumented, as preloading servers do."""

from __future__ import annotations

import subprocess
import sys

from programs import clean_environment, eventually
from uvicorn_server import exports_to

from llm_trace import semconv as s

PROGRAM = """
import asyncio, os, sys
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
import llm_trace
from llm_trace.setup import composition
from llm_trace.testing import Server, http_scope

app = llm_trace.instrument(
    Starlette(routes=[Route("/v1/completions", lambda _: PlainTextResponse("x"), methods=["POST"])])
)

def ask(trace):
    server = Server(b"{}")
    header = (b"traceparent", f"00-{trace * 32}-{'1' * 16}-01".encode())
    asyncio.run(app(http_scope("/v1/completions", headers=[header]), server.receive, server.send))

def flush():
    for dispatch in composition._dispatches.values():
        dispatch.flush()

ask("a")
child = os.fork()
ask("c" if child else "b")
flush()
if child:
    assert os.waitpid(child, 0)[1] == 0
else:
    os._exit(0)
"""


def test_18_both_sides_of_a_fork_export_and_nothing_twice(tap):
    """What was queued before the fork is sent once; each side's own span and metrics arrive."""
    env = clean_environment(**exports_to(tap.endpoint, OTEL_BSP_SCHEDULE_DELAY="60000"))

    subprocess.run([sys.executable, "-c", PROGRAM], env=env, check=True, timeout=60)

    roots = eventually(
        lambda: found if len(found := [x for x in tap.spans() if x.is_root]) >= 3 else None,
        "spans of the parent before, of the parent after, and of the child",
    )
    assert ["a" * 32, "b" * 32, "c" * 32] == sorted(root.trace_id for root in roots)
    assert s.REQUESTS.name in tap.metrics()
