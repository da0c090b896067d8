"""What a person can get wrong: one sentence each, before anything is started."""

import os
import socket
import sys
from pathlib import Path

import pytest

from llm_trace.demo import interpreter, model
from llm_trace.demo.engine import check_model, environment, vllm_server
from llm_trace.demo.errors import DemoError
from llm_trace.demo.ports import choose


@pytest.fixture
def pythons(tmp_path):
    """Write programs that answer as a Python would."""

    def write(name, says, status=0):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\necho '{says}'\necho '{says}' >&2\nexit {status}\n")
        path.chmod(0o755)
        return path

    return write


def test_a_port_in_use_is_named_with_its_option():
    """The sentence says which option to change."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        with pytest.raises(DemoError, match=f"Port {port} .* --app-port"):
            choose(port, "--app-port")


def test_a_free_port_is_found():
    """0 asks for any."""
    assert choose(0, "--app-port") > 0


def test_a_directory_without_a_model_is_refused(tmp_path):
    """The engine would take half a minute to say the same."""
    with pytest.raises(DemoError, match=r"no config\.json"):
        check_model(tmp_path)

    (tmp_path / "config.json").touch()
    assert check_model(tmp_path) == tmp_path


def test_a_named_python_has_to_serve(pythons, tmp_path):
    """An option or variable that points at the wrong thing is an error, not a simulation."""
    lacking = pythons("lacking", "llm_trace")

    with pytest.raises(DemoError, match="no module llm_trace"):
        interpreter.find(str(lacking), {})
    with pytest.raises(DemoError, match=rf"{interpreter.VARIABLE}.*No such file"):
        interpreter.find(None, {interpreter.VARIABLE: str(tmp_path / "absent")})
    with pytest.raises(DemoError, match=r"--vllm-python.*ImportError: oh"):
        interpreter.find(str(pythons("broken", "ImportError: oh", 1)), {})


def test_the_option_beats_the_variable(pythons):
    """What is typed counts."""
    chosen, other = pythons("a", "0.32.0"), pythons("b", "0.1")

    assert interpreter.find(str(chosen), {interpreter.VARIABLE: str(other)}) == (chosen, "0.32.0")
    assert interpreter.find(None, {interpreter.VARIABLE: str(other)}) == (other, "0.1")


def test_an_environment_beside_is_found_and_passed_over_when_broken(pythons, monkeypatch, tmp_path):
    """Without being named, a Python that cannot serve is simply not used."""
    monkeypatch.setattr(interpreter.importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setattr(interpreter, "BESIDE", tmp_path / "nothing")
    assert interpreter.find(None, {}) is None

    monkeypatch.setattr(interpreter, "BESIDE", pythons("beside", "vllm,llm_trace"))
    assert interpreter.find(None, {}) is None

    monkeypatch.setattr(interpreter, "BESIDE", pythons("good", "0.32.0"))
    assert interpreter.find(None, {}) == (tmp_path / "good", "0.32.0")


def test_this_interpreter_serves_when_it_has_vllm(monkeypatch, tmp_path):
    """The last resort is the Python that runs the demo."""
    monkeypatch.setattr(interpreter, "BESIDE", tmp_path / "nothing")
    monkeypatch.setattr(interpreter.importlib.util, "find_spec", lambda _name: True)
    monkeypatch.setattr(interpreter, "probe", lambda _python: "0.32.0")

    assert interpreter.find(None, {}) == (Path(sys.executable), "0.32.0")


def test_the_shells_telemetry_settings_do_not_reach_the_demo():
    """A production endpoint in the environment gets nothing from a demo."""
    shell = {"OTEL_TRACES_SAMPLER": "always_off", "LLM_TRACE_ENABLED": "0", "PATH": "/bin"}
    env = environment("rag-app", "http://127.0.0.1:1", shell)

    assert env["PATH"] == "/bin"
    assert env["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://127.0.0.1:1"
    assert not {"OTEL_TRACES_SAMPLER", "LLM_TRACE_ENABLED"} & set(env)


@pytest.mark.parametrize(("weights", "expected"), [([], "dummy"), (["a.safetensors"], "auto")])
def test_vllm_is_served_with_the_middleware(tmp_path, weights, expected):
    """The command is the one that the documentation shows, on loopback."""
    for name in weights:
        (tmp_path / name).touch()
    command = vllm_server(
        Path("env/bin/python"), tmp_path, 1, "http://127.0.0.1:2", tmp_path
    ).command
    words = " ".join(command)

    assert command[0] == os.path.abspath("env/bin/vllm")  # noqa: PTH100 - as the code does
    assert "--middleware llm_trace.TraceMiddleware" in words
    assert "--host 127.0.0.1" in words
    assert f"--load-format {expected}" in words


def test_the_model_maker_spares_what_is_no_model(tmp_path, capsys):
    """A directory with other files, or a file, is refused in one sentence."""
    (tmp_path / "thesis.txt").touch()

    assert model.main([str(tmp_path)]) == 2
    assert model.main([str(tmp_path / "thesis.txt")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert "new or empty directory" in said[0]
