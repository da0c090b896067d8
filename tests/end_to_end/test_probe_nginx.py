"""`llm-trace probe` against a real server behind a real nginx, with buffering on and off."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from conftest import ROOT
from nginx import find_nginx, nginx, ready
from uvicorn_server import exports_to, serving

from llm_trace import semconv as s

pytestmark = pytest.mark.services

TOKENS = 60
PAUSE = 0.015
BODY = json.dumps({"tokens": TOKENS, "pause": PAUSE, "stream": True})


@pytest.fixture(scope="module")
def program():
    """A real nginx."""
    found = find_nginx(ROOT / ".cache" / "nginx")
    if found is None:
        pytest.skip("there is no nginx: install Debian's package `nginx`")
    return found


@pytest.fixture
def server(tap, programs, tmp_path):
    """A server that streams a token every few ms, and exports; plain uvicorn parses with h11."""
    return serving(programs, tmp_path, **exports_to(tap.endpoint, UVICORN_HTTP="h11"))


@pytest.fixture
def behind(program, server, programs, tmp_path):
    """A proxy in front of the server, by the value of `proxy_buffering`."""

    def behind(buffering, **more):
        folder = tmp_path / "nginx"
        proxy = nginx(program, server.port, folder, buffering=buffering, **more)
        programs.append(proxy)
        return ready(proxy)

    return behind


def probe(port, *words):
    """Run the command as users do: its status, and what it printed."""
    command = (sys.executable, "-m", "llm_trace.cli", "probe", f"http://127.0.0.1:{port}")
    done = subprocess.run(
        [*command, "--body", BODY, *words], check=False, capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout


def measured(port):
    """One request, for machines."""
    status, printed = probe(port, "--requests", "1", "--json")
    document = json.loads(printed)
    assert document["schema"] == "llm-trace.probe/1"
    return status, document["requests"][0]


def test_without_buffering_the_stream_passes_as_it_is_sent(behind, tap):
    """The network is what the client waited beyond the server, whose trace has the same id."""
    status, one = measured(behind("off").port)
    root = tap.root(one["trace_id"])

    assert (status, one["stream"]["verdict"]) == (0, "streamed")
    assert TOKENS == one["stream"]["token_events"]
    assert one["stream"]["arrivals"] > TOKENS / 2
    client, server, network = (one[who]["ttft_seconds"] for who in ("client", "server", "network"))
    assert client == pytest.approx(server + network)
    assert 0 <= network < TOKENS * PAUSE / 2
    assert server == pytest.approx(root.attributes[s.TTFT], abs=0.005)


def test_with_buffering_the_probe_says_that_a_proxy_lumps(behind):
    """The first token waits for the proxy's buffer: it is the network's time, not the server's."""
    status, one = measured(behind("on").port)

    assert (status, one["stream"]["verdict"]) == (1, "lumped")
    assert one["stream"]["arrivals"] < TOKENS / 10
    assert one["network"]["ttft_seconds"] > one["server"]["ttft_seconds"]
    assert one["network"]["ttft_seconds"] > TOKENS * PAUSE / 8


def test_a_stream_in_chunks_passes_an_nginx_that_buffers(behind):
    """Over HTTP/1.1 to the server nginx hands chunks on as they come, with the same setting."""
    _, one = measured(behind("on", version="1.1").port)

    assert "streamed" == one["stream"]["verdict"]


def test_the_screen_names_the_cure(behind):
    """At 80 columns, with the trace ids."""
    status, printed = probe(behind("on").port, "--requests", "2")

    assert status == 1
    assert "proxy_buffering off" in printed
    assert 2 == sum(line.startswith("trace ") for line in printed.splitlines())
    assert max(map(len, printed.splitlines())) <= 80


def test_the_proxys_stamp_is_the_edge(behind, tap):
    """nginx's own `X-Request-Start` gives the way from the proxy to the server."""
    _, one = measured(behind("off").port)

    assert 0 <= tap.root(one["trace_id"]).attributes[s.EDGE] < 1
