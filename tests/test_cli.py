"""The command: help, versions, and faults as one sentence."""

import importlib.util
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from llm_trace import cli
from llm_trace._version import __version__
from llm_trace.errors import LlmTraceError


@pytest.fixture
def command(monkeypatch):
    """Put a function in the place of a subcommand's."""

    def place(function):
        monkeypatch.setattr(cli, "_load", lambda _command: function)

    return place


def test_the_version_is_printed(capsys):
    """--version says name and version."""
    with pytest.raises(SystemExit) as end:
        cli.main(["--version"])

    assert end.value.code == 0
    assert capsys.readouterr().out == f"llm-trace {__version__}\n"


def test_without_a_command_the_help_lists_them(capsys):
    """A bare call is a question."""
    assert cli.main([]) == 0
    assert "demo" in capsys.readouterr().out


@pytest.mark.parametrize("command", [one.name for one in cli.COMMANDS])
def test_every_command_explains_itself(command, capsys):
    """--help works everywhere."""
    with pytest.raises(SystemExit) as end:
        cli.main([command, "--help"])

    assert end.value.code == 0
    assert "--json" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["nothing"],
        ["demo", "--requests", "0"],
        ["demo", "--requests", "many"],
        ["demo", "--app-port", "65536"],
        ["demo", "--app-port", "http"],
    ],
)
def test_unusable_words_are_status_2(words, capsys):
    """Wrong arguments are told and nothing starts."""
    with pytest.raises(SystemExit) as end:
        cli.main(words)

    assert end.value.code == 2
    assert "llm-trace" in capsys.readouterr().err


def test_a_fault_is_one_sentence_and_status_2(command, capsys):
    """The user's mistakes have no traceback."""

    def fail(_args):
        raise LlmTraceError("The port is taken: use another.")

    command(fail)

    assert cli.main(["demo"]) == 2
    assert capsys.readouterr().err == "llm-trace: The port is taken: use another.\n"


def test_a_fault_repeats_no_codes_of_a_server(command, capsys):
    """An answer's text may be in the sentence, and stands before a terminal."""

    def fail(_args):
        raise LlmTraceError("it answers 500: \x1b[2J\x07")

    command(fail)

    assert cli.main(["demo"]) == 2
    assert capsys.readouterr().err == "llm-trace: it answers 500: ?[2J?\n"


def test_ctrl_c_is_status_130(command, capsys):
    """An interrupted command says so, as shells expect."""

    def interrupt(_args):
        raise KeyboardInterrupt

    command(interrupt)

    assert cli.main(["demo"]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_a_reader_that_went_away_is_no_traceback():
    """Piping into `head` ends quietly."""
    code = (
        "import sys; from llm_trace import cli\n"
        "cli._load = lambda _c: lambda _a: print('x' * 100_000, flush=True)\n"
        "sys.exit(cli.main(['demo']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        program.stdout.close()
        said = program.stderr.read()

    assert program.returncode == cli.UNREAD
    assert said == b""


ROOFLINE = "roofline Qwen/Qwen3-8B --device L4"


def in_a_shell(words):
    """What becomes of the command, its streams redirected as a shell does."""
    line = f"exec {shlex.quote(sys.executable)} -m llm_trace.cli {words}"
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)


@pytest.mark.skipif(os.name != "posix", reason="a POSIX shell")
@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (f"{ROOFLINE} >&-", 0, ""),
        ("explain no-such-file 2>&-", 2, ""),
        ("explain - <&-", 2, "llm-trace: this is no JSON: it begins with ''.\n"),
        ("explain no-such-file <&- >&- 2>&-", 2, ""),
    ],
)
def test_a_stream_that_the_caller_closed_is_no_traceback(words, status, said):
    """As under some schedulers and supervisors: the command does its work, and the status says."""
    done = in_a_shell(words)

    assert (done.returncode, done.stderr) == (status, said)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is full")
@pytest.mark.parametrize("words", [ROOFLINE, f"{ROOFLINE} --json", "doctor", ""])
def test_a_disk_that_is_full_is_one_sentence_and_status_2(words):
    """Nothing is tried a second time at the end."""
    done = in_a_shell(f"{words} > /dev/full")

    assert done.returncode == 2
    assert done.stderr == "llm-trace: the results cannot be written: No space left on device.\n"


def test_what_a_screen_cannot_show_is_no_traceback():
    """A model may be called anything; an old terminal knows few letters."""
    code = (
        "import sys; from llm_trace import cli\n"
        "cli._load = lambda _c: lambda _a: print('\\u6a21 \\ud800') or 0\n"
        "sys.exit(cli.main(['demo']))"
    )
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "\\u6a21 \\ud800\n"


def test_a_missing_extra_names_the_install(monkeypatch, capsys):
    """The error is the command that repairs it."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)

    assert cli.main(["demo"]) == 2
    assert "pip install 'llm-trace[demo]'" in capsys.readouterr().err


def test_a_model_that_is_none_stops_the_demo_before_it_starts(tmp_path):
    """As a program: one line on stderr, status 2, nothing on stdout."""
    words = ["-m", "llm_trace.cli", "demo", "--simulate", "--model", str(tmp_path)]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "no config.json" in done.stderr
