"""The whole command: simulated everywhere, and on real vLLM where its environment was built."""

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from statistics import median

import pytest

from llm_trace.cli import main
from llm_trace.demo.interpreter import VARIABLE
from llm_trace.demo.process import _group_members, wait_for

DEMO = (sys.executable, "-m", "llm_trace.cli", "demo")
SMALL = ("--requests", "3", "--max-tokens", "8", "--concurrency", "8")


def run(*words):
    """Run the demo to its end, in this process; its programs have processes of their own."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        status = main(["demo", *words])
    return subprocess.CompletedProcess(words, status, out.getvalue(), err.getvalue())


def check_sums(data, largest):
    """Every request adds up to what its client saw, but for what no server can see."""
    for request in data["requests"]:
        assert request["sum"] == pytest.approx(sum(request["parts"].values()))
        assert abs(request["difference"]) < largest, request
    assert abs(median(request["difference"] for request in data["requests"])) < largest / 5


@pytest.fixture(scope="module")
def simulated():
    """One small run with the simulated engine, as JSON."""
    done = run("--simulate", "--json", *SMALL)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_a_simulated_run_says_so(simulated):
    """Neither the data nor the screen can be taken for an engine's."""
    data, screen = simulated

    assert data["engine"]["simulated"] is True
    assert "SIMULATED" in data["engine"]["title"]
    assert "SIMULATED" in screen


def test_every_request_is_answered_traced_and_split(simulated):
    """Thirteen requests of five classes, each with both ledgers in one trace."""
    data, _ = simulated

    assert data["ok"] is True
    assert len(data["requests"]) == 13
    assert {one["kind"]: one["count"] for one in data["classes"]} == {
        "cold": 1,
        "alone": 3,
        "unique": 3,
        "shared": 3,
        "short": 3,
    }
    for request in data["requests"]:
        assert request["services"] == ["engine-SIMULATED", "rag-app"]


def test_the_simulated_parts_add_up(simulated):
    """The sum of the parts is the client's TTFT, within what a busy machine may hide."""
    check_sums(simulated[0], 0.5)


def test_queue_prefill_and_cache_leave_their_marks(simulated):
    """The crowd queues, new prompts are computed and repeated ones are cached."""
    by_kind = {one["kind"]: one for one in simulated[0]["classes"]}
    queued = max(
        request["parts"].get("engine.queue_wait", 0) for request in simulated[0]["requests"]
    )

    assert queued > 0
    assert by_kind["alone"]["part_medians"]["engine.prefill"] > 0
    assert by_kind["shared"]["cached_tokens"] > by_kind["unique"]["cached_tokens"]


def test_both_metrics_pages_show_the_load(simulated):
    """A scrape of either process finds llm_trace's series."""
    for samples in simulated[0]["metrics"].values():
        assert any(sample.startswith("llm_trace_requests_total") for sample in samples)


def test_the_screen_is_plain_text_within_its_width():
    """Piped output has no colours and no line over a hundred columns."""
    done = run("--simulate", *SMALL)

    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert "Where to look next (SIMULATED)" in done.stdout


def test_a_port_in_use_starts_nothing():
    """One sentence and status 2."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = run("--simulate", "--app-port", str(taken.getsockname()[1]))

    assert done.returncode == 2
    assert "--app-port" in done.stderr
    assert done.stdout == ""


def test_one_port_for_two_programs_starts_nothing(unused_port):
    """The clash is told before anything runs."""
    port = str(unused_port)
    done = run("--simulate", "--app-port", port, "--engine-port", port)

    assert done.returncode == 2
    assert "cannot share a port" in done.stderr


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_ended_demo_leaves_no_process(tmp_path, number, status):
    """Ctrl-C and SIGTERM take the app and the engine along."""
    log = tmp_path / "stderr"
    with log.open("wb") as stderr:
        demo = subprocess.Popen(
            [*DEMO, "--simulate", "--keep", *SMALL],
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env=os.environ | {"TMPDIR": str(tmp_path)},
            start_new_session=True,
        )
        assert wait_for(lambda: "kept running" in log.read_text(), 60)
        children = children_of(demo.pid)
        demo.send_signal(number)

        assert demo.wait(30) == status
    assert len(children) == 2
    assert [pid for pid in children if _group_members(pid)] == []
    assert list(tmp_path.glob("llm-trace-demo-*")) == []


def children_of(pid):
    """List the direct children: each leads a group of its own."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    ).stdout
    pairs = [tuple(map(int, line.split())) for line in listed.splitlines()]
    return [child for child, parent in pairs if parent == pid]


@pytest.mark.vllm
def test_the_demo_on_real_vllm():
    """The README's first command: real engine, real queue, every request adds up."""
    python = os.environ.get(VARIABLE)
    if not python or not Path(python).exists():
        pytest.skip(f"{VARIABLE} names no Python with vLLM: run `make vllm`")
    done = run("--json", "--vllm-python", python)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)

    assert data["engine"]["simulated"] is False
    assert (data["failures"], data["untraced"], data["unsplit"]) == ([], 0, 0)
    assert len(data["requests"]) == 49
    assert all(request["services"] == ["rag-app", "vllm"] for request in data["requests"])
    check_sums(data, 0.2)
    queued = [request["parts"].get("engine.queue_wait", 0.0) for request in data["requests"]]
    assert max(queued) > 0
    by_kind = {one["kind"]: one for one in data["classes"]}
    assert by_kind["shared"]["cached_tokens"] > by_kind["unique"]["cached_tokens"]
