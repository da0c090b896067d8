"""The bounded load, on the demo's real app with a simulated engine."""

from __future__ import annotations

import sys

import pytest
from programs import Program, clean_environment, eventually, free_port, listens
from stack_files import DEPLOY
from stack_tools import run

LOAD = DEPLOY / "images" / "load.py"
SMALL = {"LOAD_ROUNDS": "1", "LOAD_PAUSE": "1", "LOAD_REQUESTS": "1", "LOAD_CONCURRENCY": "2"}
KEY = "for-the-test"


def uvicorn(factory, port, log, **env):
    """A program of the demo, ready."""
    where = ("--factory", factory, "--host", "127.0.0.1", "--port", str(port))
    program = Program((sys.executable, "-m", "uvicorn", *where), log, env=clean_environment(**env))
    program.ready(lambda: listens(port), factory)
    return program


@pytest.fixture
def app(tmp_path):
    """The port of the app."""
    engine_port, port = free_port(), free_port()
    wiring = {"DEMO_ENGINE_URL": f"http://127.0.0.1:{engine_port}", "DEMO_MODEL": "demo"}
    running = [uvicorn("llm_trace.demo.simulated:create", engine_port, tmp_path / "engine.log")]
    try:
        log = tmp_path / "app.log"
        running.append(uvicorn("llm_trace.demo.app:create", port, log, DEMO_API_KEY=KEY, **wiring))
        yield port
    finally:
        for program in running:
            program.stop()


def environment(tmp_path, **more):
    """What the load is told."""
    return clean_environment(LOAD_PULSE=str(tmp_path / "pulse"), DEMO_API_KEY=KEY, **SMALL | more)


def test_the_load_asks_and_falls_silent(app, tmp_path):
    """After its rounds it makes no more requests, stays up, and is healthy."""
    env = environment(tmp_path, LOAD_PORT=str(app))
    load = Program((sys.executable, LOAD), tmp_path / "load.log", env=env)
    try:
        eventually(lambda: "all rounds are done" in load.text(), "the load's end", log=load)

        assert load.process.poll() is None
        assert "round 1 of 1: 5 of 5 answered" in load.text()
        assert "the impatient client left" in load.text()
        assert (0, "") == run(sys.executable, LOAD, "--check", env=env)
    finally:
        load.stop()


def test_a_load_that_nobody_answers_fails(tmp_path):
    """It ends with a fault, so that it is started again."""
    status, said = run(sys.executable, LOAD, env=environment(tmp_path, LOAD_PORT=str(free_port())))

    assert 1 == status
    assert "nothing was answered" in said


@pytest.mark.parametrize(
    ("pulse", "status"),
    [(None, 1), ("", 1), ("1", 1), ("done", 0)],
    ids=["none", "empty", "old", "done"],
)
def test_the_check_tells_the_living_from_the_dead(tmp_path, pulse, status):
    """A load with no sign of life, or an old one, is not healthy."""
    if pulse is not None:
        (tmp_path / "pulse").write_text(pulse)

    assert status == run(sys.executable, LOAD, "--check", env=environment(tmp_path))[0]


@pytest.mark.parametrize("text", ["0", "-1", "1001", "many", "²"])
def test_the_load_is_bounded(tmp_path, text):
    """A number of rounds beyond the limits is refused with a sentence."""
    status, said = run(sys.executable, LOAD, env=environment(tmp_path, LOAD_ROUNDS=text))

    assert 1 == status
    assert f"LOAD_ROUNDS={text} cannot be used: give a number from 1 to 1000" in said
